/** Splits the answer of a view or of `_all_docs` into its head and its rows, without parsing the rows. */
import { StringDecoder } from 'node:string_decoder'
import { CouchError } from '../core/errors.ts'

/** The end of the first line of an answer. */
const ROWS = '"rows":['
/** Separates rows. It is in no row: stored JSON has no line ends between tokens, nor can its strings have any. */
const LINE = '\r\n'

/** Rows as JSON texts, after the head. */
export interface ListRows {
  /** JSON text: `total_rows`, `offset` and `update_seq`, as far as the answer has them. */
  readonly head: string
  /** JSON text of a list of the next rows, never empty; null after the last one. */
  next(): Promise<string | null>
  /** Ends the reading early. */
  close(): Promise<void>
}

/**
 * @param answer in the form of protocol.md 8.2
 * @throws as the answer at its first chunk
 */
export async function readRows(answer: AsyncIterable<Uint8Array>): Promise<ListRows> {
  const chunks = answer[Symbol.asyncIterator]()
  const decoder = new StringDecoder('utf8')
  let rest = ''
  const more = async (): Promise<boolean> => {
    const { done, value } = await chunks.next()
    if (!done) rest += decoder.write(Buffer.from(value))
    return !done
  }
  while (!rest.includes(LINE)) if (!(await more())) throw new CouchError('internal_server_error')
  const end = rest.indexOf(LINE)
  const head = headOf(rest.slice(0, end))
  rest = rest.slice(end + LINE.length)
  return {
    head,
    next: async () => {
      for (;;) {
        const at = rest.lastIndexOf(LINE)
        const lines = at === -1 ? [] : rest.slice(0, at).split(LINE)
        if (at !== -1) rest = rest.slice(at + LINE.length)
        const rows = lines.filter((line) => line !== '').map(withoutComma)
        if (rows.length > 0) return `[${rows.join(',')}]`
        if (!(await more())) return null
      }
    },
    close: async () => {
      await chunks.return?.()
    },
  }
}

function headOf(line: string): string {
  return `${line.slice(0, -ROWS.length).replace(/,$/, '')}}`
}

function withoutComma(line: string): string {
  return line.endsWith(',') ? line.slice(0, -1) : line
}
