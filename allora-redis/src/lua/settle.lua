-- Extends and finishes runs of jobs in the commonest state: one hold and nothing rare. Whatever else
-- there is, it is read and left to the caller.
-- KEYS: state, jobs. ARGV: now, token, prefix of due keys, length of the prefix of job keys, last
-- instant; then five for each job: fence (empty: only read), lasts (empty: it ended well), whether
-- the cursor moves, where to, its due time.
local now = clock(ARGV[1])
local head, due_keys, cut = '1 ' .. ARGV[2] .. ' ', ARGV[3], ARGV[4] + 1
local last_instant = tonumber(ARGV[5])
local answer = begin(now)
local words = '^1 %S+ (%d+ %d+ %d+) (%S+) (%S+) (%S+ %d+) (%d+) (%S+ %S+ %S+) %. '
  .. '(%x+) (%d+) (%d+) (%d+) (%d+) ([01]) (.*)$'

local function index(kind, key, notice)
  if not kind or kind == '' then return end
  if notice then
    redis.call('ZADD', due_keys .. kind, text(notice), string.sub(key, cut))
  else
    redis.call('ZREM', due_keys .. kind, string.sub(key, cut))
  end
end

local function settle(key, at)
  local read = redis.pcall('HMGET', key, 'hot', 'kind')
  local hot, kind = read[1], read[2]
  if not hot then return end
  local ids, cursor, due, begun, ran, ending, claim, fence, run, attempt, till, leased, node =
    string.match(hot, words)
  if fence ~= ARGV[at] or #ran > 15 then return end
  local lasts, moves, following = ARGV[at + 1], ARGV[at + 2] == '1', ARGV[at + 3]
  local last = string.match(begun, '^%S+')
  if lasts ~= '' then
    till = math.max(tonumber(till), math.min(math.floor((now + lasts) / 1000), last_instant))
    local notice = till
    if leased == '0' and cursor ~= '-' and (last == '-' or tonumber(last) < tonumber(cursor)) then
      notice = math.min(till, tonumber(due))
    end
    till = text(till)
    index(kind, key, notice)
    redis.call('HSET', key, 'hot', head .. ids .. ' ' .. cursor .. ' ' .. due .. ' ' .. begun .. ' '
      .. ran .. ' ' .. ending .. ' . ' .. claim .. ' ' .. fence .. ' ' .. run .. ' ' .. attempt
      .. ' ' .. till .. ' ' .. leased .. ' ' .. node)
    return 'until ' .. till
  end
  if following ~= '-' and tonumber(following) <= tonumber(run) then return end
  if cursor == run then
    -- It was started, and would be offered no more: the schedule would end here unseen.
    if not moves then return end
    cursor, due = following, ARGV[at + 4]
  end
  local notice = nil
  if cursor ~= '-' and (last == '-' or tonumber(last) < tonumber(cursor)) then
    notice = tonumber(due)
  end
  index(kind, key, notice)
  redis.call('HSET', key, 'hot', head .. ids .. ' ' .. cursor .. ' ' .. due .. ' ' .. begun .. ' '
    .. text(ran + 1) .. ' ran ' .. fence .. ' f . -')
  -- Somebody may wait for the end of this run.
  return notice and notice * 1000 <= now and 'due' or 'done'
end

local at = 6
for i = 2, #KEYS do
  answer[i + 2] = ARGV[at] ~= '' and settle(KEYS[i], at) or fields(KEYS[i])
  at = at + 5
end
return answer
