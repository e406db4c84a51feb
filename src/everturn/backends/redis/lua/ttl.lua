-- Let the session expire this long after its latest change. ARGV from 10: seconds, or '' for never.
if not life then return refused('no_session') end
local kind, after, plan = 'ttl', state, {ttl = ARGV[10]}
