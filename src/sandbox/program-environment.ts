/**
 * The part of environment.ts that turns the text of a function into the function. Like the rest, it is a text that QuickJS
 * evaluates, inside the function of environment.ts, whose variables it uses.
 *
 * The text is a program, and the function is the value of its last statement that has one. In contrast to JavaScript, a
 * statement that begins with `function (` is an expression, which needs no semicolon: in the program itself, and in the
 * bodies of its functions, but not within a block or after `if`. QuickJS tells where such a statement is, since it is a
 * syntax error there, and `0,` in front makes it an expression. So the program is read by no other parser.
 *
 * Each function has globals and built-in objects of its own, which its modules share, so that no program disturbs another
 * one.
 *
 * Source: CouchDB's query server with QuickJS, which reads programs so, and gives each function a context.
 */
export const PROGRAM_ENVIRONMENT = String.raw`
  const { getPrototypeOf } = Object
  const { toString: tagOf } = Object.prototype
  const { indexOf, lastIndexOf, slice, codePointAt } = String.prototype
  const { test } = RegExp.prototype
  const SURROGATE = /[\ud800-\udfff]/
  // More such statements are not repaired, since the program is read again for each of them.
  const MAX_REPAIRS = 200
  // The head has a line of its own, so that the columns of the program stay the same.
  const HEAD = 'throw 0;\n'
  // A class stands only in a list of statements, and both declarations of a name only outside blocks.
  const PROBE = 'class $settee_list {} function $settee_scope() {} var $settee_scope;'
  const KEYWORD = 'function'
  const SPACES = ' \t\v\f\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\ufeff'
  let newRealm

  function has(text, part) { return apply(indexOf, text, [part]) !== -1 }

  // The function of a text. Throws the reason, a string, if the text has none.
  function compile(text) {
    const realm = openRealm()
    let value
    try {
      value = evaluate(realm, text)
    } catch (error) {
      if (isMemory(error)) throw error
      throw textOfThrown(error, MAX_MESSAGE)
    }
    if (typeof value !== 'function' || isDeferring(realm, value)) throw 'Expression does not eval to a function.'
    return value
  }

  function openRealm() {
    const realm = newRealm()
    for (let i = 0; i < GLOBALS.length; i += 1) realm.globals[GLOBALS[i][0]] = GLOBALS[i][1]
    // As in CouchDB, libraries that were copied into the text of a reduce function look whether they can require others.
    if (!isReduce) realm.globals.require = requireFrom(realm, create(null), [])
    return realm
  }

  // Whether a function's result is a promise or a generator: then nothing has run when the call returns.
  function isDeferring({ deferring }, fn) {
    const prototype = getPrototypeOf(fn)
    for (let i = 0; i < deferring.length; i += 1) if (deferring[i] === prototype) return true
    return false
  }

  // Every call of a user's function.
  function call(fn, self, given) { return settled(apply(fn, self, given)) }

  // A promise or a generator is no result. Other objects with "next" are: numbers of a library for large integers.
  function settled(value) {
    if ((typeof value !== 'object' || value === null) && typeof value !== 'function') return value
    const tag = apply(tagOf, value, [])
    if (typeof value.then === 'function' || tag === '[object Generator]' || tag === '[object AsyncGenerator]') {
      throw new TypeError('a function of a design document must return its result, not a promise or a generator')
    }
    return value
  }

  function evaluate(realm, text) { return realm.evaluate(programOf(realm, text)) }

  function programOf(realm, given) {
    // Only the first line of a program may be such a comment.
    let text = apply(slice, given, [0, 2]) === '#!' ? '//' + apply(slice, given, [2]) : given
    let last = -1
    for (let count = 0; count < MAX_REPAIRS; count += 1) {
      const fault = faultOf(realm, text)
      if (fault === undefined) return text
      const at = fault.message === 'function name expected' ? statementAt(realm, text, fault.at) : endAt(realm, text, fault, last)
      if (at === -1) return text
      if (at !== fault.at) last = at
      text = apply(slice, text, [0, at]) + (at === fault.at ? ';' : '0,') + apply(slice, text, [at])
    }
    return text
  }

  // The syntax error of a program, which is not run.
  function faultOf(realm, text) {
    try {
      realm.evaluate(HEAD + text)
    } catch (error) {
      if (isMemory(error)) throw error
      if (error instanceof realm.SyntaxError) return { message: error.message, at: placeOf(text, error.stack) }
    }
  }

  // QuickJS counts lines and code points. The stack begins with "at <input>:line:column".
  function placeOf(text, stack) {
    const numbers = parts(parts(stack, '\n')[0], ':')
    let line = numberOf(numbers[numbers.length - 2]) - 2
    let column = numberOf(numbers[numbers.length - 1]) - 1
    let at = 0
    for (; line > 0; line -= 1) at = apply(indexOf, text, ['\n', at]) + 1
    if (!apply(test, SURROGATE, [text])) return at + column
    for (; column > 0; column -= 1) at += apply(codePointAt, text, [at]) > 0xffff ? 2 : 1
    return at
  }

  // Where a statement begins with the keyword before a parenthesis; -1: it is no such statement.
  function statementAt(realm, text, parenthesis) {
    let start = parenthesis
    while (text[parenthesis] === '(' && start > 0) {
      start = apply(lastIndexOf, text, [KEYWORD, start - 1])
      if (start === -1) break
      if (!isGap(text, start + KEYWORD.length, parenthesis)) continue
      const fault = faultOf(realm, apply(slice, text, [0, start]) + PROBE)
      if (fault === undefined) return start
      // The word of a comment before the parenthesis is not the keyword.
      if (fault.message !== 'unexpected end of comment') return fault.at < start + PROBE.length ? -1 : start
    }
    return -1
  }

  // Whether there are only spaces and comments, without a line break.
  function isGap(text, start, end) {
    for (let at = start; at < end; at += 1) {
      if (has(SPACES, text[at])) continue
      if (text[at] !== '/' || text[at + 1] !== '*') return false
      const close = apply(indexOf, text, ['*/', at + 2])
      if (close === -1 || close >= end) return false
      const comment = apply(slice, text, [at, close])
      if (has(comment, '\n') || has(comment, '\r')) return false
      at = close + 1
    }
    return true
  }

  // Where a semicolon is missing after a statement that was made an expression at "start"; -1: it is missing elsewhere.
  function endAt(realm, text, { message, at }, start) {
    if (message !== "expecting ';'" || start === -1 || at <= start) return -1
    return faultOf(realm, '(' + apply(slice, text, [start, at]) + '\n)') === undefined ? at : -1
  }
`
