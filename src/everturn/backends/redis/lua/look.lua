-- The facts of a session, and the state it is or was in. Reads only.
-- ARGV: now ('': by the server's clock), a snapshot's id, a version, whether to list the snapshots, whether to list
-- all others. The answer: status; the fields of meta; how many snapshots; the state asked for; the snapshots; the
-- others that are not cleared, up to the floor or to the head.
local facts = call('HMGET', META, 'life', 'version', 'last_seq', 'state', 'bytes', 'dimension', 'ttl', 'expires_at',
                   'created_at', 'changed_at', 'forked_from', 'jumps', 'undo', 'forgotten')
if not facts[1] then
  if call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS) > 0 then return {'headless'} end
  return {'no_session'}
end
local now, ends = tonumber(ARGV[1]), whole(facts[8])
if not ends and facts[8] ~= '' then return {'headless'} end
if ends then
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  if ends <= now then return {'no_session'} end
end
local held, state, status = call('HLEN', SNAPSHOTS), facts[4], 'found'
if ARGV[2] ~= '' then
  state = string.match(call('HGET', SNAPSHOTS, ARGV[2]) or '', '^%d+ %d+ ([%d ,]+)')
  if not state then status = 'no_snapshot' end
elseif ARGV[3] == '0' then
  state = NOTHING
elseif ARGV[3] ~= '' then
  local row = call('XRANGE', CHANGES, ARGV[3] .. '-0', ARGV[3] .. '-0')[1]
  state = row and string.match(row[2][2], '^%d+ %d+ %d+ (.*)$')
  for first, last in string.gmatch(facts[14] or '', '(%d+)-(%d+)') do
    if tonumber(first) <= tonumber(ARGV[3]) and tonumber(ARGV[3]) <= tonumber(last) then state = nil end
  end
  if not state then status = 'no_version' end
end
if not state then return {status, facts, held} end
local head, cleared, floor = unpacked(state)
if not head then return {'headless'} end
local last = ARGV[5] ~= '' and head or floor
local others = cleared < last and call('ZRANGEBYSCORE', OTHERS, cleared + 1, last) or {}
return {status, facts, held, state, ARGV[4] ~= '' and call('HGETALL', SNAPSHOTS) or {}, others}
