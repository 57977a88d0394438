-- The kinds of the due index. Forgets kinds that have no job in it any more. KEYS: kinds. ARGV: prefix
-- of due keys.
local kinds = {}
for _, kind in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if redis.call('EXISTS', ARGV[1] .. kind) == 1 then
    kinds[#kinds + 1] = kind
  else
    redis.call('SREM', KEYS[1], kind)
  end
end
return kinds
