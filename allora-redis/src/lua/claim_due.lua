-- Finds the jobs that are due and have nothing but an open cursor, and claims that. A job whose
-- definition has no lease is left, and one that has other parts. KEYS: state, hot, definitions, rare,
-- the list of the node's last claims, due keys. ARGV: now, the last time at which jobs may be claimed
-- (empty: no limit), limit, claim id, version stamp, node, `1` to find the last claims again, the kinds
-- of the due keys.
-- Replies with the names, the hot records after the claim, and the definitions.
local now = clock(ARGV[1])
local reply = begin(now)
local limit, claim_id, node = tonumber(ARGV[3]), ARGV[4], ARGV[6]
local names, new, found = {}, {}, {}
reply[4], reply[5], reply[6] = names, new, found

if ARGV[7] == '1' then
  local claimed = redis.call('LRANGE', KEYS[5], 0, -1)
  if table.remove(claimed, 1) == claim_id and #claimed > 0 then
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

local match, sub, floor = string.match, string.sub, math.floor
local written, now_ms = text(now), floor(now / 1000)
local before = '1 ' .. ARGV[5] .. ' ' .. written .. ' '
local kinds, bytes = #KEYS - 5, 0
for turn = 1, kinds do
  -- Each kind is the first one now and then.
  local k = 6 + (now + turn) % kinds
  local kind, skip, index, last = ARGV[k + 2], 0, {}, nil
  repeat
    local read = redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', now_ms, 'LIMIT', skip, limit)
    last = #read < limit
    if #read > 0 then
      local hot, definitions, rare = fields(KEYS[2], read), fields(KEYS[3], read), fields(KEYS[4], read)
      for i = 1, #read do
        local definition = definitions[i]
        local generation, fence, cursor, due, last_started, started, ended, wrote
        local length, lease, place
        if #names < limit and bytes < 16777216 and hot[i] and definition and (not rare[i] or rare[i] == '') then
          length, lease, place = match(definition, '^(%d+) %d+ ([1-9]%d*) ()')
          wrote, generation, fence, cursor, due, last_started, started, ended = match(
            hot[i], '^1 %S+ (%d+) (%d+ %d+) (%S+) (%d+) (%d+) (%S+) (%d+) (%d+ %S+ %S+ %S+) %-$')
        end
        if lease and wrote and sub(definition, place, place + length - 1) == kind
          and tonumber(cursor) <= now_ms and tonumber(due) <= now_ms
          and (last_started == '-' or tonumber(last_started) < tonumber(cursor))
          and tonumber(fence == '=' and wrote or fence) < now then
          local record = before .. generation .. ' = ' .. cursor .. ' ' .. due .. ' ' .. cursor .. ' '
            .. text(started + 1) .. ' ' .. ended .. ' ' .. claim_id .. ' = ' .. cursor .. ' '
            .. (due == cursor and '=' or due) .. ' 1 = +' .. lease .. '000 retry ' .. node
          local n = #names + 1
          names[n], new[n], found[n] = read[i], record, definition
          bytes = bytes + #definition
          index[#index + 1] = text(floor((now + lease * 1000) / 1000))
          index[#index + 1] = read[i]
        end
      end
    end
    -- Jobs that are left must not hide others for ever.
    skip = skip + limit
  until last or #names >= limit or skip >= 16 * limit
  -- The index first: an entry too late is repaired when it is found.
  if #index > 0 then call_with('ZADD', KEYS[k], index) end
  if #names >= limit then break end
end
if #names > 0 then
  local set = {}
  for n = 1, #names do
    set[2 * n - 1], set[2 * n] = names[n], new[n]
  end
  call_with('HSET', KEYS[2], set)
  redis.call('DEL', KEYS[5])
  redis.call('RPUSH', KEYS[5], claim_id)
  call_with('RPUSH', KEYS[5], names)
  redis.call('PEXPIRE', KEYS[5], 3600000)
end
return reply
