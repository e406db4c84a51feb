-- Remove every part of a session. The answer: entries, snapshots, bytes.
local entries, held, size = call('XLEN', LOG), call('HLEN', SNAPSHOTS), call('HGET', META, 'bytes') or '0'
call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS)
return {entries, held, size}
