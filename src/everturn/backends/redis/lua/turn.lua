-- By far the most frequent change, without detours: messages, with no key, no condition and no earlier attempt, to a
-- session that is there, stands at the end of its log, and was not changed since the request was issued. In all other
-- cases what follows this text decides. (Every 64th version too, for it forgets old changes.)
-- ARGV: call, ttl, bytes of all bodies; then "checksum body" of each message.
do
  local call = redis.call
  local facts = call('HMGET', KEYS[1], 'life', 'version', 'last_seq', 'state', 'bytes', 'ttl', 'expires_at',
                     'changed_at', 'fence')
  local head, hidden, messages, kept = string.match(facts[4] or '', '^(%d+) (%d+ %d+) (%d+)(.*)$')
  local version, size = string.match(facts[2] or '', '^%d+$'), string.match(facts[5] or '', '^%d+$')
  local ttl, changed_at = facts[6], tonumber(facts[8])
  local plain = facts[1] and head and head == facts[3] and version and size and version % 64 ~= 63
    and changed_at and changed_at < issued and (tonumber(facts[9]) or 0) <= issued
  if plain and ttl ~= '' then
    local ends = tonumber(facts[7])
    ttl = tonumber(ttl)
    plain = ends and ends > now and ttl and ttl < 1e10
  end
  if plain then
    -- Each number is made a text once: that is a good part of the time.
    local count = #ARGV - 3
    local first = head + 1 .. ''
    local last, log = first, KEYS[2]
    local mark = first .. ' ' .. at .. ' '
    call('XADD', log, first .. '-0', 'message', mark .. ARGV[4])
    for i = 2, count do
      last = head + i .. ''
      call('XADD', log, last .. '-0', 'message', mark .. ARGV[i + 3])
    end
    local state = last .. ' ' .. hidden .. ' ' .. (messages + count) .. kept
    local written = first .. ' ' .. count
    version = version + 1 .. ''
    call('XADD', KEYS[4], version .. '-0', 'append', written .. ' ' .. at .. ' ' .. state, 'call', ARGV[1])
    if ttl == '' then
      call('HSET', KEYS[1], 'version', version, 'last_seq', last, 'state', state, 'bytes', size + ARGV[3],
           'changed_at', at)
    else
      local ends = now + ttl * 1000000
      call('HSET', KEYS[1], 'version', version, 'last_seq', last, 'state', state, 'bytes', size + ARGV[3],
           'changed_at', at, 'expires_at', string.format('%.0f', ends))
      local expiry = string.format('%.0f', math.floor(ends / 1000) + 1)
      for i = 1, 5 do call('PEXPIREAT', KEYS[i], expiry) end
    end
    return at .. ' applied ' .. facts[1] .. ' ' .. version .. ' ' .. written
  end
end
local given = ARGV
-- A life is named after the call that begins it.
local life = string.gsub(string.sub(given[1], 1, 8), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
-- As change.lua and append.lua have them.
local ARGV = {given[1], life, given[2], '', '', '', '-', '', '', '', '', #given - 3, given[3]}
for i = 4, #given do
  ARGV[#ARGV + 1] = 'message'
  ARGV[#ARGV + 1] = given[i]
end
