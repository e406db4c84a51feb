-- Remove every part of a session. ARGV: whether replicas are waited for. The answer: entries, snapshots, bytes.
local entries, held, size = call('XLEN', LOG), call('HLEN', SNAPSHOTS), call('HGET', META, 'bytes') or '0'
call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS)
if ARGV[1] == 'w' then
  -- WAIT counts replicas that have all this connection wrote: where nothing was left to remove, write all the same.
  call('SET', META, '')
  call('UNLINK', META)
end
return {entries, held, size}
