-- Finds the jobs that are due and have nothing but an open cursor, and claims that. A job whose
-- definition has no lease is left, and one that has other parts. KEYS: state, hot, definitions, rare,
-- the node's last claims, history, history entries, due keys. ARGV: now, the last time at which jobs may
-- be claimed (empty: no limit), limit, claim id, version stamp, node, `1` to find the last claims again,
-- prefix of the histories of single jobs (empty: no history), the kinds of the due keys.
-- Replies with the names, the hot records after the claim, and the definitions.
local now = clock(ARGV[1])
local reply = begin(now)
local limit, claim_id, node, history = tonumber(ARGV[3]), ARGV[4], ARGV[6], ARGV[8]
local names, new, found = {}, {}, {}
reply[4], reply[5], reply[6] = names, new, found

if ARGV[7] == '1' then
  local last = redis.call('GET', KEYS[5])
  local id, claimed
  if last then id, claimed = cmsgpack.unpack(last) end
  if id == claim_id then
    local hot, definitions = fields(KEYS[2], claimed), fields(KEYS[3], claimed)
    for i = 1, #claimed do
      -- Ended or changed since: what the client reads decides.
      if hot[i] and definitions[i] then
        names[#names + 1], new[#new + 1], found[#found + 1] = claimed[i], hot[i], definitions[i]
      end
    end
  end
  return reply
end
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return reply end

-- Compares numbers as texts: the longer one is the greater one.
local function is_less(a, b) return #a < #b or (#a == #b and a < b) end

local match, find, floor = string.match, string.find, math.floor
local written, now_ms = text(now), floor(now / 1000)
local after_now = text(now_ms + 1)
local before, lease_tail = '1 ' .. ARGV[5] .. ' ' .. written .. ' ', '000 retry ' .. node
local n, set, entries = 0, {}, {}
-- Numbers as texts, of values that most jobs share.
local ends, starts = {}, {}
-- One job beside the empty name has rare parts, or none.
local has_rare = redis.call('HLEN', KEYS[4]) > 1
local kinds, bytes = #KEYS - 7, 0
for turn = 1, kinds do
  -- Each kind is the first one now and then.
  local k = 8 + (now + turn) % kinds
  local kind, skip, index, last = ARGV[k + 1], 0, {}, nil
  local header = '^' .. #kind .. ' %d+ ([1-9]%d*) ()'
  repeat
    local read = redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', now_ms, 'LIMIT', skip, limit)
    last = #read < limit
    if #read > 0 then
      local hot, definitions = fields(KEYS[2], read), fields(KEYS[3], read)
      local rare = has_rare and fields(KEYS[4], read) or {}
      for i = 1, #read do
        local name, record, definition = read[i], hot[i], definitions[i]
        local lease, place, wrote, generation, fence, cursor, due, last_started, started, ended
        if n < limit and bytes < 16777216 and record and definition and (rare[i] or '') == '' then
          lease, place = match(definition, header)
          wrote, generation, fence, cursor, due, last_started, started, ended = match(
            record, '^1 %S+ (%d+) (%d+ %d+) (%S+) (%d+) (%d+) (%S+) (%d+) (%d+ %S+ %S+ %S+) %-$')
        end
        if lease and wrote and find(definition, kind, place, true) == place
          and is_less(cursor, after_now) and (due == cursor or is_less(due, after_now))
          and (last_started == '-' or is_less(last_started, cursor))
          and is_less(fence == '=' and wrote or fence, written) then
          local lease_end, count = ends[lease], starts[started]
          if not lease_end then
            lease_end = text(floor((now + lease * 1000) / 1000))
            ends[lease] = lease_end
          end
          if not count then
            count = text(started + 1)
            starts[started] = count
          end
          n = n + 1
          new[n] = before .. generation .. ' = ' .. cursor .. ' ' .. due .. ' ' .. cursor .. ' '
            .. count .. ' ' .. ended .. ' ' .. claim_id .. ' = ' .. cursor
            .. (due == cursor and ' = 1 = +' or ' ' .. due .. ' 1 = +') .. lease .. lease_tail
          names[n], found[n] = name, definition
          set[2 * n - 1], set[2 * n] = name, new[n]
          bytes = bytes + #definition
          index[#index + 1] = lease_end
          index[#index + 1] = name
          if history ~= '' then
            entries[n] = ',"kind":' .. cjson.encode(kind) .. ',"fence":' .. written
              .. ',"occurrence":{"scheduled_at":' .. cursor .. '},"count":1,"due_at":' .. due
          end
        end
      end
    end
    -- Jobs that are left must not hide others for ever.
    skip = skip + limit
  until last or n >= limit or skip >= 16 * limit
  -- The index first: an entry too late is repaired when it is found.
  if #index > 0 then call_with('ZADD', KEYS[k], index) end
  if n >= limit then break end
end
if n == 0 then return reply end
if history ~= '' then
  local places, written_entries = {}, {}
  local tail = ',"attempt":1,"node":' .. cjson.encode(node) .. ',"started_at":' .. text(now_ms)
    .. ',"outcome":"running"}'
  for i = 1, n do
    local member = written .. ' ' .. names[i]
    redis.call('ZADD', history .. names[i], written, member)
    places[2 * i - 1], places[2 * i] = written, member
    written_entries[2 * i - 1] = member
    written_entries[2 * i] = '{"v":1,"name":' .. cjson.encode(names[i]) .. entries[i] .. tail
  end
  call_with('ZADD', KEYS[6], places)
  call_with('HSET', KEYS[7], written_entries)
end
redis.call('SET', KEYS[5], cmsgpack.pack(claim_id, names), 'PX', 3600000)
call_with('HSET', KEYS[2], set)
return reply
