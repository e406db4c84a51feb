-- The most frequent change by a short way: append messages, without a key, a condition or an earlier attempt, to a session
-- that exists, whose head is the end of its log, and which was not changed since the request was issued. In every other case
-- append.lua follows, behind this text. (At every 64th version, too: _change.lua then forgets old changes.)
-- It writes the same as append.lua (tests/integration/redis/test_append_fast.py); an append takes three quarters of the time: decision 011.
-- ARGV: call, ttl, bytes of all bodies; then "checksum body" of each message.
do
  local call = redis.call
  local facts = call('HMGET', KEYS[1], unpack(FACTS))
  local head, hidden, messages, kept = string.match(facts[4] or '', '^(%d+) (%d+ %d+) (%d+)(.*)$')
  local version, size = string.match(facts[2] or '', '^%d+$'), string.match(facts[5] or '', '^%d+$')
  local ttl, changed_at = facts[7], tonumber(facts[10])
  local plain = facts[1] and head and head == facts[3] and version and size and version % 64 ~= 63
    and changed_at and changed_at < issued and (tonumber(facts[14]) or 0) <= issued and sound(facts)
  if plain and ttl ~= '' then
    local ends = tonumber(facts[8])
    ttl = tonumber(ttl)
    plain = ends and ends > now and ttl and ttl < 1e10
  end
  if plain then
    -- Each number is made a text only once: that takes a good part of the time.
    local count = #ARGV - 3
    local first = head + 1 .. ''
    local last, log, message = first, KEYS[2], 'message ' .. facts[1]
    local mark, base = first .. ' ' .. at .. ' ', base_of(first, now)
    call('XADD', log, first .. '-0', message, mark .. place_of(first, base) .. ' ' .. ARGV[4])
    for i = 2, count do
      last = head + i .. ''
      call('XADD', log, last .. '-0', message, mark .. place_of(last, base) .. ' ' .. ARGV[i + 3])
    end
    local state = last .. ' ' .. hidden .. ' ' .. (messages + count) .. kept
    local written = first .. ' ' .. count
    version = version + 1 .. ''
    local row = {'append ' .. facts[1], written .. ' ' .. at .. ' ' .. state, 'call', ARGV[1]}
    call('XADD', KEYS[4], version .. '-0', row[1], change_check(version, row) .. row[2], 'call', ARGV[1])
    facts[2], facts[3], facts[4], facts[5], facts[10] = version, last, state, size + ARGV[3], at
    if ttl == '' then
      call('HSET', KEYS[1], 'version', version, 'last_seq', last, 'state', state, 'bytes', facts[5], 'changed_at', at,
           'check', check_of(facts))
    else
      local ends = now + ttl * 1000000
      facts[8] = string.format('%.0f', ends)
      call('HSET', KEYS[1], 'version', version, 'last_seq', last, 'state', state, 'bytes', facts[5], 'changed_at', at,
           'expires_at', facts[8], 'check', check_of(facts))
      local expiry = string.format('%.0f', math.floor(ends / 1000) + 1)
      for i = 1, 6 do call('PEXPIREAT', KEYS[i], expiry) end
    end
    return at .. ' applied ' .. facts[1] .. ' ' .. version .. ' ' .. written
  end
end
local given = ARGV
-- A life is named after the call that begins it.
local life = string.gsub(string.sub(given[1], 1, 8), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
-- The arguments as _change.lua and append.lua take them.
local ARGV = {given[1], life, given[2], '', '', '', '-', '', '', '', '', #given - 3, given[3]}
for i = 4, #given do
  ARGV[#ARGV + 1] = 'message'
  ARGV[#ARGV + 1] = given[i]
end
