/** What stands in a JSON text (RFC 8259), as expressions that are tried at one place of it. */

const OTHER = '-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][-+]?\\d+)?|true|false|null'
export const SPACE = /[ \t\n\r]*/y
export const NUMBER_OR_WORD = new RegExp(OTHER, 'y')
/** Half of a surrogate pair, escaped or not. */
export const LONE = /\\u[dD][89a-fA-F][\da-fA-F]{2}|[\ud800-\udfff]/y

/** Expressions for strings whose runs of plain characters are of any length, or of a bounded one. */
export interface StringExpressions {
  /** A string of plain characters. An expression takes 40 ns, and 0.7 ns a character; a loop 2.7 ns a character. */
  readonly string: RegExp
  /** A member whose value is no container, as most are: in a third of the time that its parts would take. */
  readonly member: RegExp
  /** Some parts of a string. Without a bound on their number the expression's stack would overflow. */
  readonly parts: RegExp
}

/** A text of up to so many characters has no string that takes long. */
const SHORT_TEXT = 1024 * 1024
const OF_SHORT_TEXT = expressions('*', '+')
const OF_LONG_TEXT = expressions('{0,16384}', '{1,16384}')

function expressions(any: string, some: string): StringExpressions {
  // A surrogate is not plain: it must be one of a pair.
  const plain = '[^"\\\\\\u0000-\\u001f\\ud800-\\udfff]'
  const escaped =
    '\\\\(?:["\\\\/bfnrt]|u(?:(?![dD][89a-fA-F])[\\da-fA-F]{4}|[dD][89abAB][\\da-fA-F]{2}\\\\u[dD][c-fC-F][\\da-fA-F]{2}))'
  const string = `"${plain}${any}"`
  return {
    string: new RegExp(string, 'y'),
    member: new RegExp(`${string}:(?:${string}|${OTHER})`, 'y'),
    parts: new RegExp(`(?:${plain}${some}|${escaped}|[\\ud800-\\udbff][\\udc00-\\udfff]){1,32}`, 'y'),
  }
}

/** @param length of the text that is to be read, in UTF-16 units */
export function expressionsFor(length: number): StringExpressions {
  return length > SHORT_TEXT ? OF_LONG_TEXT : OF_SHORT_TEXT
}
