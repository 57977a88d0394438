-- Reads jobs. KEYS: state, hot, definitions, rare, cold. ARGV: names.
local reply = begin(clock(''))
if #ARGV > 0 then
  for k = 2, 5 do reply[#reply + 1] = fields(KEYS[k], ARGV) end
end
return reply
