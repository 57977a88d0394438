-- Reads jobs. KEYS: state, jobs. ARGV: now.
local answer = begin(clock(ARGV[1]))
for i = 2, #KEYS do answer[#answer + 1] = fields(KEYS[i]) end
return answer
