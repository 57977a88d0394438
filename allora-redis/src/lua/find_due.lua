-- Finds the jobs that want attention. Dead letters are not read. KEYS: state, hot, definitions, rare,
-- due keys. ARGV: until, the number of jobs of each kind to leave out, limit.
-- Replies with the first time that was not found (or nothing), then, if there are jobs: their names,
-- the number of jobs of each due key, and a list for each hash.
local reply = begin(clock(''))
local before, skip, limit = '(' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local names, counts, next = {}, {}, nil

local function found_next(score)
  score = tonumber(score)
  if score and (not next or score < next) then next = score end
end

local due = {}
for k = 5, #KEYS do
  local read = redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', before, 'LIMIT', skip, limit + 1)
  if #read > limit then
    found_next(redis.call('ZSCORE', KEYS[k], table.remove(read)))
  else
    found_next(redis.call('ZRANGEBYSCORE', KEYS[k], ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  end
  due[k - 4] = read
end

-- Scores are read only if the jobs of several kinds are more than the limit: only then they have to
-- be compared.
local total = 0
for _, read in ipairs(due) do total = total + #read end
if total > limit then
  local all = {}
  for kind, read in ipairs(due) do
    if #read > 0 then
      local scores = redis.call(
        'ZRANGEBYSCORE', KEYS[kind + 4], '-inf', before, 'WITHSCORES', 'LIMIT', skip, limit)
      for e = 1, #scores, 2 do all[#all + 1] = { tonumber(scores[e + 1]), scores[e], kind } end
    end
    due[kind] = {}
  end
  table.sort(all, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  found_next(all[limit + 1][1])
  for e = 1, limit do
    local of_kind = due[all[e][3]]
    of_kind[#of_kind + 1] = all[e][2]
  end
end
for kind, read in ipairs(due) do
  counts[kind] = #read
  if #names == 0 then
    names = read
  else
    for _, name in ipairs(read) do names[#names + 1] = name end
  end
end
reply[4] = next and text(next) or ''
if #names > 0 then
  reply[5], reply[6] = names, counts
  for k = 2, 4 do reply[k + 5] = fields(KEYS[k], names) end
end
return reply
