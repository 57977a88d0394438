-- Takes what is due of jobs in the commonest state: nothing but a cursor whose occurrence was not
-- begun. Whatever else there is, it is read and left to the caller.
-- KEYS: state, jobs. ARGV: now, node, token, prefix of due keys, length of the prefix of job keys,
-- last instant; then eight for each job: claim (empty: only read), fence, expected, following
-- instant, its due time, fresh until, lasts, leased.
local now = clock(ARGV[1])
local head, node, due_keys, cut = '1 ' .. ARGV[3] .. ' ', ARGV[2], ARGV[4], ARGV[5] + 1
local last_instant = tonumber(ARGV[6])
local answer, fence_now = begin(now), text(now)
local words = '^1 %S+ (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+ %S+ %S+ %S+) %. %-$'

local function take(key, at)
  local read = redis.pcall('HMGET', key, 'hot', 'kind')
  local hot, kind = read[1], read[2]
  if not hot then return end
  local edition, incarnation, fence, cursor, due, last, started, rest = string.match(hot, words)
  local expected = ARGV[at + 2]
  if not fence or fence ~= ARGV[at + 1] or cursor ~= expected then return end
  local instant, number = tonumber(expected), tonumber(fence)
  -- Beyond this, Lua's numbers are not whole.
  if number > 9007199254740990 or #started > 15 then return end
  if last ~= '-' and tonumber(last) >= instant then return end
  if instant * 1000 > now or tonumber(due) * 1000 > now then return end
  if ARGV[at + 5] ~= '' and now > tonumber(ARGV[at + 5]) then return end
  fence = number >= now and text(number + 1) or fence_now
  local till = math.min(math.floor((now + ARGV[at + 6]) / 1000), last_instant)
  local till_text = text(till)
  local leased, notice = ARGV[at + 7], till
  if leased == '0' then
    cursor, due = ARGV[at + 3], ARGV[at + 4]
    if due ~= '-' then notice = math.min(till, tonumber(due)) end
  end
  -- The index first: an entry too many does no harm.
  if kind and kind ~= '' then
    redis.call('ZADD', due_keys .. kind, text(notice), string.sub(key, cut))
  end
  redis.call('HSET', key, 'hot', head .. edition .. ' ' .. incarnation .. ' ' .. fence .. ' '
    .. cursor .. ' ' .. due .. ' ' .. expected .. ' ' .. text(started + 1) .. ' ' .. rest .. ' . '
    .. ARGV[at] .. ' ' .. fence .. ' ' .. expected .. ' 1 ' .. till_text .. ' ' .. leased .. ' '
    .. node)
  return fence .. ' ' .. till_text .. ' ' .. incarnation
end

local at = 7
for i = 2, #KEYS do
  answer[i + 2] = ARGV[at] ~= '' and take(KEYS[i], at) or fields(KEYS[i])
  at = at + 8
end
return answer
