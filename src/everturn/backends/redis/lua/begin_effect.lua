-- Begin an effect, unless it was begun before. ARGV from 10: key, request ('': none), who begins it, the token of the lease that is
-- named (0: none), the attempt that may be repeated (0: none).
local before = effect_before()
if before and before.status ~= 'failed' and not (before.status == 'started' and before.attempt == ARGV[14]) then
  return with_effect(refused('unchanged'), before)
end
local row = {status = 'started', attempt = before and before.attempt + 1 or 1, token = ARGV[13], at = at, by = ARGV[12],
             request = ARGV[11]}
if row.request == '' and before then row.request = before.request end
local kind, after, plan = 'begin_effect', state, {label = ARGV[10]}
plan.write = function()
  row.began = version
  put_effect(row, 0, '', '\n\n')
  if not before then
    put_marks(texts, marks_with_it)
    parts[7], parts[8], parts_moved = parts[7] or 0, (parts[8] or 0) + 1, true
  end
end
plan.answer = function(receipt) return with_effect(receipt, row) end
