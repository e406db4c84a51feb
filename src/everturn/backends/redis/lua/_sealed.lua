-- Texts that carry a check of their own: undo steps, forgotten versions, snapshots, jumps, others. The functions are made by
-- a call, where a script needs them: making one takes the server longer than most of them run, and most requests need none.
local function sealed_texts()
  -- A text with its check in front; and back again. `name` is what it is kept under, so that no two can change places.
  local function sealed(name, text)
    return digest(LIFE .. ' ' .. name .. ' ' .. text) .. ' ' .. text
  end

  local function opened(part, name, kept)
    local text = string.sub(kept, 10)
    if string.sub(kept, 1, 9) ~= digest(LIFE .. ' ' .. name .. ' ' .. text) .. ' ' then damaged(part) end
    return text
  end

  -- A field of meta that not every session has; empty if it was never written. `length` is what it must have.
  local function field(name, length)
    if length == 0 then return '' end
    local kept = redis.call('HGET', KEYS[1], name)
    if not kept or #kept ~= length then damaged(name) end
    return opened(name, name, kept)
  end

  -- A snapshot is "version time state", and behind that a newline and its label, if it has one. Nil if there is none.
  local function snapshot_in(id, held)
    local kept = redis.call('HGET', KEYS[5], id)
    if not kept then
      if redis.call('HLEN', KEYS[5]) ~= held then damaged('snapshots') end
      return nil
    end
    return string.match(opened('snapshots', id, kept), '^%d+ %d+ ([%d ,]+)')
  end

  return {sealed = sealed, opened = opened, field = field, snapshot_in = snapshot_in}
end
