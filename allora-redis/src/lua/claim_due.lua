-- Finds the jobs that are due and have nothing but an open cursor, and claims that. A job whose
-- definition has no lease is left, and one that has other parts. KEYS: state, hot, definitions, rare,
-- the node's last claims, due keys. ARGV: now, the last time at which jobs may be claimed (empty: no
-- limit), limit, claim id, version stamp, node, `1` to find the last claims again, the kinds of the due
-- keys.
-- Jobs whose records and definitions are the same are a group. Replies with the names, the group of each,
-- and for each group the hot record after the claim, and the definition; with the names only, if it is to
-- find the last claims again.
local now = clock(ARGV[1])
local reply = begin(now)
local limit, claim_id, node = tonumber(ARGV[3]), ARGV[4], ARGV[6]
local names, groups, new, found = {}, {}, {}, {}
reply[4], reply[5], reply[6], reply[7] = names, groups, new, found

if ARGV[7] == '1' then
  local last = redis.call('GET', KEYS[5])
  local id, claimed
  if last then id, claimed = cmsgpack.unpack(last) end
  -- Ended or changed since: what the client reads decides.
  if id == claim_id then reply[4] = claimed end
  return reply
end
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return reply end

-- Compares numbers as texts: the longer one is the greater one.
local function is_less(a, b) return #a < #b or (#a == #b and a < b) end

local match, find, floor = string.match, string.find, math.floor
local written, now_ms = text(now), floor(now / 1000)
local after_now = text(now_ms + 1)
local before, lease_tail = '1 ' .. ARGV[5] .. ' ' .. written .. ' ', '000 retry ' .. node
local n, set = 0, {}
-- Numbers as texts, of values that most jobs share.
local ends, starts = {}, {}

-- The hot record after the claim; nothing if it is not to be claimed.
local function claim(record, lease)
  local wrote, generation, fence, cursor, due, last_started, started, ended = match(
    record, '^1 %S+ (%d+) (%d+ %d+) (%S+) (%d+) (%d+) (%S+) (%d+) (%d+ %S+ %S+ %S+) %-$')
  if wrote and is_less(cursor, after_now) and (due == cursor or is_less(due, after_now))
    and (last_started == '-' or is_less(last_started, cursor))
    and is_less(fence == '=' and wrote or fence, written) then
    local count = starts[started]
    if not count then
      count = text(started + 1)
      starts[started] = count
    end
    return before .. generation .. ' = ' .. cursor .. ' ' .. due .. ' ' .. cursor .. ' '
      .. count .. ' ' .. ended .. ' ' .. claim_id .. ' = ' .. cursor
      .. (due == cursor and ' = 1 = +' or ' ' .. due .. ' 1 = +') .. lease .. lease_tail
  end
end

-- One job beside the empty name has rare parts, or none.
local has_rare = redis.call('HLEN', KEYS[4]) > 1
local kinds, bytes, count = #KEYS - 5, 0, 0
for turn = 1, kinds do
  -- Each kind is the first one now and then.
  local k = 6 + (now + turn) % kinds
  local kind, skip, index, a, last = ARGV[k + 2], 0, {}, 0, nil
  local header = '^' .. #kind .. ' %d+ ([1-9]%d*) ()'
  -- Jobs that were written together have the same record until one of them runs without the others:
  -- the newest group of each record.
  local group_of = {}
  local last_definition, lease
  repeat
    local read = redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', now_ms, 'LIMIT', skip, limit)
    last = #read < limit
    if #read > 0 then
      local hot, definitions = fields(KEYS[2], read), fields(KEYS[3], read)
      local rare = has_rare and fields(KEYS[4], read) or {}
      for i = 1, #read do
        local record, definition = hot[i], definitions[i]
        if n < limit and bytes < 16777216 and record and definition and (rare[i] or '') == '' then
          if definition ~= last_definition then
            local length, place = match(definition, header)
            lease = length and find(definition, kind, place, true) == place and length
            if lease and not ends[lease] then
              ends[lease] = text(floor((now + lease * 1000) / 1000))
            end
            last_definition = definition
          end
          local group = group_of[record]
          if lease and (not group or found[group] ~= definition) then
            local claimed = claim(record, lease)
            group = nil
            if claimed then
              count = count + 1
              group = count
              group_of[record], new[group], found[group] = group, claimed, definition
            end
          end
          if lease and group then
            local name = read[i]
            n = n + 1
            names[n], groups[n] = name, group
            bytes = bytes + #definition
            set[2 * n - 1], set[2 * n] = name, new[group]
            index[a + 1], index[a + 2] = ends[lease], name
            a = a + 2
          end
        end
      end
    end
    -- Jobs that are left must not hide others for ever.
    skip = skip + limit
  until last or n >= limit or skip >= 16 * limit
  -- The index first: an entry too late is repaired when it is found.
  if a > 0 then call_with('ZADD', KEYS[k], index) end
  if n >= limit then break end
end
if n == 0 then return reply end
redis.call('SET', KEYS[5], cmsgpack.pack(claim_id, names), 'PX', 3600000)
call_with('HSET', KEYS[2], set)
return reply
