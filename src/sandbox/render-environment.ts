/**
 * The part of environment.ts for functions that answer requests: shows, lists, updates and rewrites. Like the rest, it is
 * a text that QuickJS evaluates, inside the function of environment.ts, whose variables it uses.
 *
 * Results are JSON texts: an object, or, after `!`, a list of an error and its reason.
 * - `show()`: `{"response"}`; `update()`: `{"doc","response"}`; `rewrite()`: `{"target"}`, null for no rule;
 * - `list()`: the last output, in the form of a call of `exchange`.
 *
 * A list calls `exchange(text, wants)` with its output so far, `{"response"?,"body","wants"}`: the head if it has changed, the
 * text, and whether it needs rows. The answer is a JSON list of rows, or null after the last row.
 *
 * Sources: protocol.md 9.6; share/server/render.js and mimeparse.js of CouchDB.
 */
export const RENDER_ENVIRONMENT = String.raw`
  const MAX_CHUNK = 65536
  const MAX_TRACE = 4000
  const CALLER = '    at apply (native)'
  const numberOf = Number.parseFloat
  let exchange

  // The media types that have a name; protocol.md 9.6.
  const NAMED_TYPES = [
    ['all', '*/*'],
    ['text', 'text/plain; charset=utf-8', 'txt'],
    ['html', 'text/html; charset=utf-8'],
    ['xhtml', 'application/xhtml+xml', 'xhtml'],
    ['xml', 'application/xml', 'text/xml', 'application/x-xml'],
    ['js', 'text/javascript', 'application/javascript', 'application/x-javascript'],
    ['css', 'text/css'],
    ['ics', 'text/calendar'],
    ['csv', 'text/csv'],
    ['rss', 'application/rss+xml'],
    ['atom', 'application/atom+xml'],
    ['yaml', 'application/x-yaml', 'text/yaml'],
    ['multipart_form', 'multipart/form-data'],
    ['url_encoded_form', 'application/x-www-form-urlencoded'],
    ['json', 'application/json', 'text/x-json'],
  ]
  let typesByName, namesByType, provided, contentType
  let head, isHeadChanged, isHeadFixed, text, forList, hasAsked, isAtEnd, rows, nextRow

  function beginAnswer(isOfList) {
    typesByName = create(null)
    namesByType = create(null)
    for (let i = 0; i < NAMED_TYPES.length; i += 1) registerTypes(NAMED_TYPES[i])
    provided = []
    contentType = undefined
    head = {}
    isHeadChanged = isHeadFixed = hasAsked = isAtEnd = false
    text = ''
    forList = isOfList
    rows = []
    nextRow = 0
  }

  function registerTypes(list) {
    const types = []
    for (let i = 1; i < list.length; i += 1) {
      types[types.length] = list[i]
      namesByType[list[i]] = list[0]
    }
    typesByName[list[0]] = types
  }

  function registerType() { registerTypes(arguments) }

  function provides(name, fn) { provided[provided.length] = [name, fn] }

  function start(response) {
    if (isHeadFixed) return
    head = response || {}
    isHeadChanged = true
  }

  function send(chunk) {
    text += chunk.toString()
    if (forList && hasAsked && text.length > MAX_CHUNK) pass(false)
  }

  function getRow() {
    if (!forList) throw new Error('getRow is not available here')
    if (!hasAsked) {
      hasAsked = true
      head = withType(head)
      isHeadChanged = true
    }
    if (text !== '') isHeadFixed = true
    if (nextRow === rows.length && !isAtEnd) {
      const answer = parse(pass(true))
      isAtEnd = answer === null
      rows = answer === null ? [] : answer
      nextRow = 0
    }
    if (isAtEnd) return null
    const row = rows[nextRow]
    rows[nextRow] = undefined
    nextRow += 1
    return row
  }

  function pass(wants) { return exchange(takeOutput(wants), wants) }

  function takeOutput(wants) {
    const output = (isHeadChanged ? '"response":' + textOf(head) + ',' : '') + '"body":' + stringify(text)
    if (text !== '') isHeadFixed = true
    isHeadChanged = false
    text = ''
    return '{' + output + ',"wants":' + wants + '}'
  }

  function withType(response) {
    if (contentType === undefined) return response
    const headers = response.headers || {}
    if (!headers['Content-Type']) headers['Content-Type'] = contentType
    response.headers = headers
    return response
  }

  function asResponse(value) { return typeof value === 'string' ? { body: value } : value }

  function isResponse(value) { return typeof value === 'object' && value !== null && !isList(value) }

  function trimmed(text) {
    let start = 0
    let end = text.length
    while (start < end && text[start] <= ' ') start += 1
    while (end > start && text[end - 1] <= ' ') end -= 1
    return text.slice(start, end)
  }

  function parts(text, separator) {
    const list = []
    let part = ''
    for (let i = 0; i <= text.length; i += 1) {
      if (i < text.length && text[i] !== separator) { part += text[i]; continue }
      list[list.length] = part
      part = ''
    }
    return list
  }

  // A media range with its parameters; q is 1 unless it is a number from 0 to 1.
  function mediaRange(text) {
    const list = parts(text, ';')
    const params = create(null)
    for (let i = 0; i < list.length; i += 1) {
      const pair = parts(list[i], '=')
      if (pair.length === 2) params[trimmed(pair[0])] = trimmed(pair[1])
    }
    const q = numberOf(params.q)
    if (!(q >= 0 && q <= 1)) params.q = '1'
    const full = trimmed(list[0])
    const [type, subtype] = parts(full === '*' ? '*/*' : full, '/')
    return { type, subtype, params }
  }

  function match(target, range) {
    const isType = target.type === range.type
    const isSubtype = target.subtype === range.subtype
    // A short name, such as txt, is no type to send.
    if (target.subtype === undefined && !isType) return -1
    if (!isType && range.type !== '*' && target.type !== '*') return -1
    if (!isSubtype && range.subtype !== '*' && target.subtype !== '*') return -1
    let fitness = (isType ? 100 : 0) + (isSubtype ? 10 : 0)
    for (const name in target.params) {
      if (name !== 'q' && range.params[name] === target.params[name]) fitness += 1
    }
    return fitness
  }

  // The type that fits best; of two that fit equally well, the later one.
  function bestType(types, accept) {
    const given = parts(accept, ',')
    const ranges = []
    for (let i = 0; i < given.length; i += 1) ranges[i] = mediaRange(given[i])
    let best = ''
    let bestFitness = -1
    let bestQuality = 0
    for (let i = 0; i < types.length; i += 1) {
      const target = mediaRange(types[i])
      let fitness = -1
      let quality = 0
      for (let at = 0; at < ranges.length; at += 1) {
        const found = match(target, ranges[at])
        if (found > fitness) { fitness = found; quality = numberOf(ranges[at].params.q) }
      }
      if (fitness < bestFitness || (fitness === bestFitness && quality < bestQuality)) continue
      best = types[i]
      bestFitness = fitness
      bestQuality = quality
    }
    return bestQuality > 0 ? best : ''
  }

  function nameOfType(req) {
    if (req.query && req.query.format) {
      contentType = typesByName[req.query.format][0]
      return req.query.format
    }
    const accept = req.headers.Accept
    if (!accept) {
      contentType = typesByName[provided[0][0]][0]
      return provided[0][0]
    }
    const types = []
    for (let i = provided.length - 1; i >= 0; i -= 1) {
      const named = typesByName[provided[i][0]] || []
      for (let at = 0; at < named.length; at += 1) types[types.length] = named[at]
    }
    contentType = bestType(types, accept)
    return namesByType[contentType]
  }

  function runProvided(req) {
    const name = nameOfType(req)
    for (let i = 0; name && i < provided.length; i += 1) {
      if (provided[i][0] === name) return call(provided[i][1], ddoc, [])
    }
    let supported = ''
    for (let i = 0; i < provided.length; i += 1) {
      // By format, CouchDB lists them in order; by type, the last one first.
      const [given] = provided[req.query && req.query.format ? i : provided.length - 1 - i]
      const types = typesByName[given] || []
      let joined = ''
      for (let at = 0; at < types.length; at += 1) joined += (at === 0 ? '' : ', ') + types[at]
      supported += (supported === '' ? '' : ', ') + (joined || given)
    }
    const wanted = req.headers.Accept || name
    throw ['error', 'not_acceptable', 'Content-Type ' + wanted + ' not supported, try one of: ' + supported]
  }

  function show() {
    const given = takeArguments()
    beginAnswer(false)
    try {
      let response = asResponse(call(fn, ddoc, given) || {})
      if (text !== '') {
        const headers = response.headers || {}
        for (const name in head) headers[name] = head[name]
        response.headers = headers
        response.body = text + (response.body || '')
        text = ''
      }
      if (provided.length > 0) {
        const second = asResponse(runProvided(given[1]) || {})
        response.body = (response.body || '') + text + (second.body || '')
        response = withType(response)
      }
      if (!isResponse(response)) throw ['error', 'render_error', 'undefined response from show function']
      return '{"response":' + textOf(response) + '}'
    } catch (error) {
      if (isMemory(error)) throw error
      if (given[0] === null && given[1].path.length > 5) return failed(['error', 'not_found', 'document not found'])
      return failed(error, 'render_error')
    }
  }

  function update() {
    const given = takeArguments()
    beginAnswer(false)
    try {
      if (given[1].method === 'GET') throw ['error', 'method_not_allowed', 'Update functions do not allow GET']
      const result = call(fn, ddoc, given)
      const response = asResponse(result[1])
      if (!isResponse(response)) throw ['error', 'render_error', 'undefined response from update function']
      return '{"doc":' + textOf(result[0]) + ',"response":' + textOf(response) + '}'
    } catch (error) {
      return failed(error, 'render_error')
    }
  }

  function list() {
    const given = takeArguments()
    beginAnswer(true)
    try {
      let tail = call(fn, ddoc, given)
      if (provided.length > 0) tail = runProvided(given[1])
      if (!hasAsked) getRow()
      if (tail !== undefined) text += tail
      return takeOutput(false)
    } catch (error) {
      return failed(error, 'render_error')
    }
  }

  function rewrite() {
    const given = takeArguments()
    beginAnswer(false)
    try {
      const result = call(fn, ddoc, given)
      if (!result) return '{"target":null}'
      return '{"target":' + textOf(typeof result === 'string' ? { path: result, method: given[0].method } : result) + '}'
    } catch (error) {
      return failed(error, 'rewrite_error')
    }
  }

  function failed(error, name) {
    if (isMemory(error)) throw error
    try {
      return '!' + textOf(errorOf(error, name))
    } catch (second) {
      if (isMemory(second)) throw second
      return '!' + stringify([name, 'something that cannot be shown as text'])
    }
  }

  // Errors that the function names itself, as a list or an object, keep their names.
  function errorOf(error, name) {
    if (isList(error) && (error[0] === 'error' || error[0] === 'fatal')) return [error[1], error[2]]
    if (typeof error === 'object' && error !== null && error.error && error.reason) return [error.error, error.reason]
    const trace = isError(error) ? ' \nstacktrace: ' + bounded(ownFrames(String(error.stack)), MAX_TRACE) : ''
    return [name, 'function raised error: ' + textOfThrown(error, MAX_MESSAGE) + trace]
  }

  // The frames of the user's functions, without those that called them.
  function ownFrames(stack) {
    for (let i = 0; i + CALLER.length <= stack.length; i += 1) {
      if (stack.slice(i, i + CALLER.length) === CALLER) return stack.slice(0, i)
    }
    return stack
  }
`
