-- Shared by the scripts below. Numbers of more than 14 digits are printed with '%.0f': Lua's own
-- conversion would cut them.
local function text(number) return string.format('%.0f', number) end

-- The server's time in microseconds, or the one that was given.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The line and all fields of a job, or, where its key is none of ours, why not.
local function job(line, key)
  local read = redis.pcall('HMGET', key, 'cold', 'kind', 'text', 'data')
  if read.err then return { line, read.err } end
  return { line, unpack(read, 1, 4) }
end

-- What every answer begins with: now, the mark of the shard, the floor of its fences.
local function begin(now)
  local state = redis.call('HMGET', KEYS[1], 'mark', 'floor')
  return { text(now), state[1], state[2] }
end
