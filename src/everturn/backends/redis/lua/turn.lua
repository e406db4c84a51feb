-- By far the most frequent change, without detours: messages, with no key, no condition and no earlier attempt, to a
-- session that is there, has no TTL and stands at the end of its log. In all other cases what follows this text decides.
-- (Every 64th version too, for it forgets old changes.) ARGV is that of append.lua.
do
  local facts = redis.call('HMGET', KEYS[1], 'life', 'version', 'last_seq', 'state', 'bytes', 'ttl')
  local head, hidden, messages, kept = string.match(facts[4] or '', '^(%d+) (%d+ %d+) (%d+)(.*)$')
  local version, size = tonumber(facts[2]), tonumber(facts[5])
  if head and facts[6] == '' and head == facts[3] and version and size and version % 64 ~= 63 then
    local call, at, first = redis.call, ARGV[8], head + 1
    local seq, mark = first, first .. ' ' .. at .. ' '
    for i = 15, #ARGV, 2 do
      call('XADD', KEYS[2], seq .. '-0', 'message', mark .. ARGV[i])
      seq = seq + 1
    end
    local count = seq - first
    local state = (seq - 1) .. ' ' .. hidden .. ' ' .. (messages + count) .. kept
    version = version + 1
    call('XADD', KEYS[4], version .. '-0', 'append', first .. ' ' .. count .. ' ' .. at .. ' ' .. state, 'call', ARGV[1])
    call('HSET', KEYS[1], 'version', version, 'last_seq', seq - 1, 'state', state, 'bytes', size + ARGV[13],
         'changed_at', at)
    return 'applied ' .. facts[1] .. ' ' .. version .. ' ' .. first .. ' ' .. count
  end
end
