-- Replaces the hot records that the caller has cached, and reads the other jobs. The new hot records
-- were computed by the caller, except for the time with which some begin.
-- KEYS: state, hot, definitions, rare, cold, kinds, history, history entries, flags. ARGV: now, the
-- first and the last time at which the updates hold (empty: no limit), version stamp (empty: the new
-- hot records are whole), prefix of due keys, prefix of the histories of single jobs (empty: there are
-- no history entries), the number of jobs; their names; the number of runs of jobs with the same stamp
-- and the same new record (empty: each job is a run of its own), and for each run: its length (if there
-- is a number of runs), the version stamp of the cached records with a blank (empty: not cached), the
-- new hot record, or what follows the time in it; if there are history entries, for each job: the fence
-- (empty: it has none), and the entry up to the time in milliseconds, with which it ends; then the
-- number of flags that jobs have from now on, and for each: the flag, the key of its names, the number
-- of jobs (`*`: all) and their positions (not for `*`); then the changes of the index, in groups of one
-- kind and one length of lease: the kind, the length (empty: none), `+` if all want attention when the
-- lease ends, `=` if all want it at one time, the number of jobs (`*`: all), their positions (not for
-- `*`), and, without `+`, when they want attention at the latest (`-`: never): for each, or one time
-- with `=`.
-- Replies with the positions of the jobs that were not updated, and a list of them for each hash.
local now, count = clock(ARGV[1]), tonumber(ARGV[7])
local reply = begin(now)
local hot = redis.call('HMGET', KEYS[2], unpack(ARGV, 8, 7 + count))
local holds = (ARGV[2] == '' or now >= tonumber(ARGV[2]))
  and (ARGV[3] == '' or now <= tonumber(ARGV[3]))
local prefix = ARGV[4] ~= '' and '1 ' .. ARGV[4] .. ' ' .. text(now) .. ' '
local set, s = {}, 0
local left, left_hot, names, is_left = {}, {}, {}, {}
local find, ARGV = string.find, ARGV
local e, i = 9 + count, 0
local runs = tonumber(ARGV[e - 1])
for _ = 1, runs or count do
  local length, same = 1, nil
  if runs then
    length = tonumber(ARGV[e])
    e = e + 1
  end
  local stamp, new = ARGV[e], ARGV[e + 1]
  e = e + 2
  if prefix then new = prefix .. new end
  local is_held = holds and stamp ~= ''
  for _ = 1, length do
    i = i + 1
    local record = hot[i]
    if is_held and record and (record == same or find(record, stamp, 3, true) == 3) then
      same = record
      set[s + 1], set[s + 2] = ARGV[7 + i], new
      s = s + 2
    else
      is_left[i] = true
      left[#left + 1], left_hot[#left + 1], names[#left + 1] = i, record, ARGV[7 + i]
    end
  end
end
-- The index and the history first: an entry too many does no harm if the rest fails.
if ARGV[6] ~= '' then
  local places, entries, p = {}, {}, 0
  local end_of_entry = text(math.floor(now / 1000)) .. '}'
  for i = 1, count do
    if not is_left[i] and ARGV[e] ~= '' then
      local name, fence = ARGV[7 + i], ARGV[e]
      local place = fence .. ' ' .. name
      redis.call('ZADD', ARGV[6] .. name, fence, place)
      places[p + 1], places[p + 2] = fence, place
      entries[p + 1], entries[p + 2] = place, ARGV[e + 1] .. end_of_entry
      p = p + 2
    end
    e = e + 2
  end
  if p > 0 then
    call_with('ZADD', KEYS[7], places)
    call_with('HSET', KEYS[8], entries)
  end
end
local flags = tonumber(ARGV[e])
e = e + 1
for _ = 1, flags do
  local is_all, flagged, f = ARGV[e + 2] == '*', {}, 0
  local n = is_all and count or tonumber(ARGV[e + 2])
  for k = 1, n do
    local i = is_all and k or tonumber(ARGV[e + 2 + k])
    if not is_left[i] then
      flagged[f + 1], flagged[f + 2] = 0, ARGV[7 + i]
      f = f + 2
    end
  end
  if f > 0 then
    redis.call('SADD', KEYS[9], ARGV[e])
    call_with('ZADD', ARGV[e + 1], flagged)
  end
  e = e + 3 + (is_all and 0 or n)
end
while e < #ARGV do
  local kind, length, at_end, same, of = ARGV[e], ARGV[e + 1], ARGV[e + 2] == '+', nil, ARGV[e + 3]
  local is_all, lease_end, ending = of == '*', nil, nil
  if length ~= '' then
    lease_end = math.floor((now + tonumber(length)) / 1000)
    ending = text(lease_end)
  end
  local n = is_all and count or tonumber(of)
  local positions = e + 3
  local scores = is_all and positions or positions + n
  if ARGV[e + 2] == '=' then same = ARGV[scores + 1] end
  e = scores + 1 + (at_end and 0 or same and 1 or n)
  local add, a, remove = {}, 0, {}
  for k = 1, n do
    local i = is_all and k or tonumber(ARGV[positions + k])
    if not is_left[i] then
      local score = at_end and ending or same or ARGV[scores + k]
      if score == '-' then
        remove[#remove + 1] = ARGV[7 + i]
      else
        if lease_end and not at_end and tonumber(score) > lease_end then score = ending end
        add[a + 1] = score
        add[a + 2] = ARGV[7 + i]
        a = a + 2
      end
    end
  end
  -- Without another job in the index, its kind may have been forgotten.
  if a > 0 and call_with('ZADD', ARGV[5] .. kind, add) > 0 and kind ~= '' then
    redis.call('SADD', KEYS[6], kind)
  end
  if #remove > 0 then call_with('ZREM', ARGV[5] .. kind, remove) end
end
if s > 0 then call_with('HSET', KEYS[2], set) end
reply[4] = left
if #left > 0 then
  reply[5] = left_hot
  for k = 3, 5 do reply[k + 3] = fields(KEYS[k], names) end
end
return reply
