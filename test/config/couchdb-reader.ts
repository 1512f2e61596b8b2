/**
 * CouchDB's own reading of an ini file, ported from config:parse_ini_file (src/config/src/config.erl) as an oracle.
 * @returns `section/key` -> value
 */
export function readAsCouchDb(text: string): Map<string, string> {
  const values = new Map<string, string>()
  let section = ''
  let last: string | null = null
  for (const line of text.split(/\r\n|\n|\r/)) {
    const stripped = line.replace(/^ +| +$/g, '')
    if (stripped.startsWith('[')) {
      const [name, rest, ...more] = stripped.slice(1).split(']')
      if (rest === '' && more.length === 0) section = name as string
    } else if (!stripped.startsWith(';')) {
      const [key = '', ...parts] = stripped.split(/ ?= ?/)
      if (parts.length === 0 && /^ \S/.test(line) && last !== null) {
        values.set(last, `${values.get(last)} ${key.split(/\s*;|\t;/)[0]}`)
      } else if (parts.length > 0 && key !== '') {
        const value = parts.join('=').split(/ +;|\t;/)[0] as string
        last = `${section}/${key}`
        values.set(last, value)
      }
    }
  }
  return values
}
