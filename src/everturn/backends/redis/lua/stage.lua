-- Add entries to a copy that nobody sees yet. KEYS: the staged log and others.
-- ARGV: milliseconds until it is forgotten; then seq, kind and value of each entry.
for i = 2, #ARGV, 3 do
  local seq, kind = ARGV[i], ARGV[i + 1]
  redis.call('XADD', KEYS[1], seq .. '-0', kind, ARGV[i + 2])
  if kind ~= 'message' then
    local class = kind == 'summary' and 's' or kind == 'tool_call' and 't' or 'r'
    redis.call('ZADD', KEYS[2], seq, class .. seq)
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return #ARGV
