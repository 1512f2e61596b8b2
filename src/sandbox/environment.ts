import { PROGRAM_ENVIRONMENT } from './program-environment.ts'
import { RENDER_ENVIRONMENT } from './render-environment.ts'

/**
 * The built-in objects of a realm that {@link ENVIRONMENT} needs. `deferring` has the prototypes of functions whose result is
 * a promise or a generator. A promise is no JSON value: it would become an empty object in the result of a function.
 */
export const REALM = `
Object.defineProperty(Promise.prototype, 'toJSON', { value() { throw new TypeError('a promise is no JSON value') } });
({
  globals: globalThis,
  evaluate: eval,
  SyntaxError,
  deferring: [async function () {}, function* () {}, async function* () {}].map((each) => Object.getPrototypeOf(each)),
})`

/**
 * The environment of a function in QuickJS: the globals that CouchDB offers, and the entry points for calls. It is a text,
 * because QuickJS evaluates it. It saves the built-ins that it needs before any user's function can change them; a
 * function that changes its own globals harms only its own results.
 *
 * It evaluates to an object of functions from texts to a text:
 * - `load(source, path, name)`: reads the design document and compiles the function; `null`, or `[code, reason]` as JSON;
 * - `share(text)`: sets the argument that all calls of a piece share;
 * - `give(text)`: adds an argument of the next call;
 * - `filter()`: `true`, `false`, or the thrown value;
 * - `map()`, `mapViews()`, `reduce()`, `validate()`: results as in messages.ts;
 * - `connect(exchange, newRealm)`: sets what the host does for it: render-environment.ts, and {@link REALM};
 * - `show()`, `list()`, `update()`, `rewrite()`: render-environment.ts.
 * The result begins with `!` when the function threw.
 *
 * Sources: protocol.md 9.2; CouchDB's own functions of these names in its query server.
 */
export const ENVIRONMENT = String.raw`(function () {
  'use strict'
  const { parse, stringify } = JSON
  const { freeze, keys: keysOf, entries: entriesOf, create } = Object
  const { apply } = Reflect
  const { isArray: isList } = Array
  const hasOwn = Object.prototype.hasOwnProperty
  const { isError: isErrorOfEngine } = Error
  const MAX_MESSAGE = 1000
  const MAX_REASON = 8192
  const MAX_EMITTED = 100000

  let ddoc, fn, shared
  let maps = []
  let isOfView = false
  let isReduce = false
  let args = []
  let emitted = []
  let count = 0

  // All realms have these.
  const GLOBALS = entriesOf({
    emit(key, value) {
      if (count === MAX_EMITTED) throw new Error('a document may have at most ' + MAX_EMITTED + ' rows in a view')
      emitted[count++] = [key, value]
    },
    log() {},
    sum(values) {
      let total = 0
      for (const i in values) total += values[i]
      return total
    },
    isArray(value) { return isList(value) },
    toJSON(value) { return stringify(value) },
    registerType, provides, start, send, getRow,
  })
  for (const [, value] of GLOBALS) {
    freeze(value)
    freeze(value.prototype)
  }

  function owns(object, name) { return apply(hasOwn, object, [name]) }

  function bounded(text, max) { return text.length > max ? text.slice(0, max) + '...' : text }

  // QuickJS throws this itself; the call cannot go on.
  function isMemory(thrown) {
    return isErrorOfEngine(thrown) && owns(thrown, 'message') &&
      typeof thrown.message === 'string' && thrown.message.slice(0, 13) === 'out of memory'
  }

  // An error of any realm, or an object that inherits from one.
  function isError(thrown) {
    if (isErrorOfEngine(thrown)) return true
    return typeof thrown === 'object' && thrown !== null &&
      typeof thrown.name === 'string' && typeof thrown.message === 'string' && typeof thrown.stack === 'string'
  }

  function textOfThrown(thrown, max) {
    try {
      if (typeof thrown === 'string') return bounded(thrown, max)
      // An error that names itself, such as those of "require".
      if (isList(thrown) && thrown.length === 3 && thrown[0] === 'error') return bounded(thrown[1] + ': ' + thrown[2], max)
      if (isError(thrown)) return bounded(thrown.name + ': ' + thrown.message, max)
      const json = stringify(thrown)
      return bounded(json === undefined ? String(thrown) : json, max)
    } catch (error) {
      if (isMemory(error)) throw error
      return 'something that cannot be shown as text'
    }
  }

  function locate(path) {
    let at = ddoc
    for (let i = 0; i < path.length; i += 1) {
      if (typeof at !== 'object' || at === null || isList(at)) return { code: 'not_found', reason: 'json_mismatch' }
      if (!owns(at, path[i])) return { code: 'not_found', reason: 'missing json key: ' + path[i] }
      at = at[path[i]]
    }
    return { value: at }
  }

  function load(source, pathText, name) {
    ddoc = parse(source)
    const path = parse(pathText)
    isOfView = path[0] === 'views'
    isReduce = isOfView && path[2] === 'reduce'
    if (isOfView && path.length === 1) return loadMaps()
    const { code, reason, value } = locate(path)
    if (code !== undefined) return stringify([code, reason])
    if (typeof value !== 'string') return stringify(['compilation_error', 'It is not a string.'])
    if (value === '' && !isOfView) {
      return stringify(['not_found', 'missing ' + path[0] + ' function ' + path[path.length - 1] + ' on design doc ' + name])
    }
    const compiled = compileText(value)
    fn = compiled.fn
    return stringify(compiled.failure)
  }

  function compileText(text) {
    if (text === '') return { failure: ['not_found', 'missing function'] }
    try {
      return { fn: compile(text), failure: null }
    } catch (failure) {
      if (typeof failure !== 'string') throw failure
      return { failure: ['compilation_error', failure + ' (' + bounded(text, MAX_MESSAGE) + ')'] }
    }
  }

  // The map functions of all views, which share the parsed document.
  function loadMaps() {
    const { views } = ddoc
    const names = keysOf(views)
    maps = []
    for (let i = 0; i < names.length; i += 1) {
      const view = views[names[i]]
      if (names[i] === 'lib' || typeof view !== 'object' || view === null || typeof view.map !== 'string') continue
      const { fn, failure } = compileText(view.map)
      if (failure !== null) return stringify(failure)
      maps[maps.length] = fn
    }
    return 'null'
  }

  function share(text) { shared = parse(text); return 'null' }

  function give(text) { args[args.length] = parse(text); return 'null' }

  function takeArguments() {
    const list = args
    args = []
    return list
  }

  function steps(name) {
    const list = []
    let step = ''
    for (let i = 0; i <= name.length; i += 1) {
      if (i < name.length && name[i] !== '/') { step += name[i]; continue }
      if (step !== '') list[list.length] = step
      step = ''
    }
    return list
  }

  function badPath(name, fault) { return ['error', 'invalid_require_path', bounded(name, 200) + ' ' + fault] }

  function resolve(folder, name) {
    const list = steps(name)
    const path = []
    const isRelative = list[0] === '.' || list[0] === '..'
    if (isRelative) for (let i = 0; i < folder.length; i += 1) path[i] = folder[i]
    for (let i = 0; i < list.length; i += 1) {
      if (list[i] === '.') continue
      if (list[i] !== '..') { path[path.length] = list[i]; continue }
      if (path.length === 0) throw badPath(name, 'has no parent')
      path.length -= 1
    }
    return path
  }

  // CommonJS modules from the members of the design document. "modules" has those of a realm.
  function requireFrom(realm, modules, folder) {
    return function require(given) {
      const name = String(given)
      const path = resolve(folder, name)
      const id = stringify(path)
      if (modules[id] !== undefined) return modules[id].exports
      // The index of a view stays valid while the member views of the design document is the same.
      if (isOfView && (path[0] !== 'views' || path[1] !== 'lib')) {
        throw badPath(name, 'is not in views/lib')
      }
      const { reason, value } = locate(path)
      if (reason !== undefined) {
        throw badPath(name, 'is not in the design document')
      }
      if (typeof value !== 'string') {
        throw badPath(name, 'is not a string')
      }
      return runModule(realm, modules, path, name, value)
    }
  }

  function runModule(realm, modules, path, name, text) {
    const id = stringify(path)
    let joined = ''
    const folder = []
    for (let i = 0; i < path.length; i += 1) {
      joined += (i === 0 ? '' : '/') + path[i]
      if (i < path.length - 1) folder[i] = path[i]
    }
    const module = { id: joined, exports: {} }
    // Entered before the module runs, so that modules can require each other.
    modules[id] = module
    try {
      const body = evaluate(realm, '(function (module, exports, require) { ' + text + '\n})')
      apply(body, realm.globals, [module, module.exports, requireFrom(realm, modules, folder)])
    } catch (error) {
      delete modules[id]
      if (isMemory(error)) throw error
      const reason = "Module require('" + bounded(name, 200) + "') raised error " + textOfThrown(error, MAX_MESSAGE)
      throw ['error', 'compilation_error', reason]
    }
    return module.exports
  }

  function filter() {
    const given = takeArguments()
    try {
      return call(fn, ddoc, [given[0], shared]) ? 'true' : 'false'
    } catch (error) {
      if (isMemory(error)) throw error
      return '!' + textOfThrown(error, MAX_MESSAGE)
    }
  }

  function seal(value) {
    if (typeof value !== 'object' || value === null) return
    freeze(value)
    const names = keysOf(value)
    for (let i = 0; i < names.length; i += 1) seal(value[names[i]])
  }

  function textOf(value) {
    const json = stringify(value)
    return json === undefined ? 'null' : json
  }

  function map() {
    const doc = takeArguments()[0]
    seal(doc)
    try {
      return emittedBy(fn, doc)
    } catch (error) {
      if (isMemory(error)) throw error
      return '![]'
    }
  }

  function emittedBy(map, doc) {
    emitted = []
    count = 0
    call(map, undefined, [doc])
    let rows = ''
    for (let i = 0; i < count; i += 1) {
      rows += (i === 0 ? '[' : ',[') + textOf(emitted[i][0]) + ',' + textOf(emitted[i][1]) + ']'
    }
    return '[' + rows + ']'
  }

  function mapViews() {
    const doc = takeArguments()[0]
    seal(doc)
    let lists = ''
    for (let i = 0; i < maps.length; i += 1) {
      if (i > 0) lists += ','
      try {
        lists += emittedBy(maps[i], doc)
      } catch (error) {
        if (isMemory(error)) throw error
        lists += stringify(textOfThrown(error, MAX_MESSAGE))
      }
    }
    return '[' + lists + ']'
  }

  function reduce() {
    const given = takeArguments()
    try {
      return textOf(call(fn, undefined, given))
    } catch (error) {
      if (isMemory(error)) throw error
      return '!null'
    }
  }

  function reasonText(value) {
    let json
    try { json = textOf(value) } catch (error) { if (isMemory(error)) throw error }
    return json === undefined || json.length > MAX_REASON ? stringify(textOfThrown(value, MAX_REASON)) : json
  }

  function verdict(error, reason) {
    return '{"error":' + stringify(error) + ',"reason":' + reasonText(reason) + '}'
  }

  // For an object, the first member that CouchDB knows; for an object with one member, the value of that member. A list
  // names its error, as in functions that answer requests.
  function verdictOf(thrown) {
    if (isList(thrown) && thrown.length === 3 && (thrown[0] === 'error' || thrown[0] === 'fatal')) {
      return verdict(bounded(String(thrown[1]), 200), thrown[2])
    }
    if (typeof thrown === 'object' && thrown !== null) {
      const names = keysOf(thrown)
      for (let i = 0; i < names.length; i += 1) {
        if (names[i] === 'forbidden' || names[i] === 'unauthorized') return verdict(names[i], thrown[names[i]])
      }
      if (names.length === 1 && !isError(thrown)) return verdict('unknown_error', thrown[names[0]])
    }
    return verdict('unknown_error', textOfThrown(thrown, MAX_MESSAGE))
  }

  function validate() {
    const given = takeArguments()
    try {
      call(fn, ddoc, given)
      return 'null'
    } catch (error) {
      if (isMemory(error)) throw error
      try {
        return '!' + verdictOf(error)
      } catch (second) {
        if (isMemory(second)) throw second
        return '!' + verdict('unknown_error', textOfThrown(second, MAX_MESSAGE))
      }
    }
  }

  function connect(...given) { [exchange, newRealm] = given; return 'null' }
${RENDER_ENVIRONMENT}
${PROGRAM_ENVIRONMENT}
  return { load, share, give, filter, map, mapViews, reduce, validate, connect, show, list, update, rewrite }
})()`
