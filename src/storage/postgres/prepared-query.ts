/**
 * A statement on its way through pg. pg's own query asks for the types of the columns with each execution, copies its
 * settings, emits an event for each row and makes three arrays of it; together that took more CPU time than a short read.
 */
import pg from 'pg'
import { EndedByServer, isAnswer } from './store-fault.ts'

/**
 * The columns of a row. `bigint` is a number, `bigint[]` a list of numbers, `bytea` a Buffer, and JSON stays text.
 */
export type Row = readonly unknown[]

export interface Answer<R extends Row> {
  readonly rows: R[]
  /** The tag of the command, such as COMMIT. */
  readonly command: string
}

/** Makes the value of a column from its text. */
type Decode = (text: string) => unknown

/** Of the columns of a statement; null: it stays text. */
type Decoders = readonly (Decode | null)[]

/** What a connection knows of the statements that it has prepared, by their names. */
export type KnownColumns = Map<string, Decoders>

const TEXT_TYPES: ReadonlySet<number> = new Set([25, 114, 1043, 3802])
const INT8 = 20
const INT8_LIST: number = 1016
/** Execute of the unnamed portal, without a maximum of rows, and Sync: PostgreSQL's manual, "Message Formats". */
const EXECUTE_AND_SYNC = Buffer.from('45000000090000000000' + '5300000004', 'hex')

export interface AskedStatement {
  /** Absent: it has no values, and is not prepared. */
  readonly name?: string
  readonly text: string
  readonly values?: readonly unknown[]
}

/** The messages of pg that are used here. */
interface RowDescription {
  readonly fields: readonly { readonly dataTypeID: number }[]
}
interface DataRow {
  readonly fields: unknown[]
}
interface CommandComplete {
  readonly text: string
}

/** The part of pg's connection that sends, with what it notes of prepared statements. */
interface Sender {
  readonly stream: { cork(): void; uncork(): void; write(bytes: Uint8Array): boolean }
  readonly parsedStatements: Readonly<Record<string, string>>
  readonly submittedNamedStatements: Record<string, string>
  query(text: string): void
  parse(statement: { readonly name: string; readonly text: string }): void
  bind(values: {
    readonly statement: string
    readonly values: readonly unknown[]
    readonly valueMapper: (value: unknown) => string | Buffer | null
  }): void
  describe(portal: { readonly type: 'P' }): void
}

/** The part of pg's connection that tells what it receives. */
interface Receiver {
  on(event: 'readyForQuery' | 'end', listener: () => void): unknown
  off(event: 'readyForQuery' | 'end', listener: () => void): unknown
}

/** Pipelines take subclasses of pg's query alone. Its members are those that the client calls. */
const Base = pg.Query as unknown as new (text: string) => object

export class PreparedQuery extends Base {
  readonly name: string | undefined
  readonly text: string
  readonly callback: (error: unknown, answer?: Answer<Row>) => void
  readonly #values: readonly unknown[]
  readonly #known: KnownColumns
  readonly #rows: Row[] = []
  #decoders: Decoders | undefined
  #command = ''
  #fault: { readonly error: unknown } | undefined

  /**
   * @param known of its connection; is added to
   * @param callback is called once
   */
  constructor(
    { name, text, values = [] }: AskedStatement,
    known: KnownColumns,
    callback: (error: unknown, answer?: Answer<Row>) => void,
  ) {
    super('')
    this.name = name
    this.text = text
    this.callback = callback
    this.#values = values
    this.#known = known
  }

  /** Sends it. @returns an error if it cannot be sent */
  submit(connection: Sender): Error | null {
    const { name, text } = this
    if (name === undefined) {
      connection.query(text)
      return null
    }
    const { parsedStatements, submittedNamedStatements, stream } = connection
    const prepared = parsedStatements[name] ?? submittedNamedStatements[name]
    if (prepared !== undefined && prepared !== text) return new Error(`Two statements are called ${name}.`)
    stream.cork()
    if (prepared === undefined) {
      connection.parse({ name, text })
      submittedNamedStatements[name] = text
    }
    connection.bind({ statement: name, values: this.#values, valueMapper: parameterOf })
    this.#decoders = this.#known.get(name)
    if (this.#decoders === undefined) connection.describe({ type: 'P' })
    stream.write(EXECUTE_AND_SYNC)
    stream.uncork()
    return null
  }

  handleRowDescription({ fields }: RowDescription): void {
    this.#decoders = fields.map(({ dataTypeID }) => decoderOf(dataTypeID))
    if (this.name !== undefined) this.#known.set(this.name, this.#decoders)
  }

  handleDataRow({ fields }: DataRow): void {
    const decoders = this.#decoders as Decoders
    try {
      for (let at = 0; at < fields.length; at++) {
        const decode = decoders[at]
        if (decode && fields[at] !== null) fields[at] = decode(fields[at] as string)
      }
      this.#rows.push(fields)
    } catch (error) {
      this.#fault ??= { error }
    }
  }

  handleCommandComplete({ text }: CommandComplete): void {
    this.#command = text.split(' ', 1)[0] as string
  }

  /** A statement without text. */
  handleEmptyQuery(): void {}

  handleReadyForQuery(): void {
    if (this.#fault === undefined) this.callback(null, { rows: this.#rows, command: this.#command })
    else this.callback(this.#fault.error)
  }

  /**
   * Behind an error of a statement, the server is ready for the next one. Behind any other (FATAL, PANIC), it ends the connection. The
   * severity does not tell them apart: it is a word of the server's language.
   */
  handleError(error: unknown, connection: Receiver): void {
    if (!isAnswer(error)) {
      this.callback(error)
      return
    }
    const settle = (cause: unknown) => {
      connection.off('readyForQuery', ready)
      connection.off('end', ended)
      this.callback(cause)
    }
    const ready = () => settle(error)
    const ended = () => settle(new EndedByServer(error))
    connection.on('readyForQuery', ready)
    connection.on('end', ended)
  }
}

/** Numbers of settee are below 2^53. JSON is parsed by whoever needs it. @param type the oid of a type */
export function decoderOf(type: number): Decode | null {
  if (TEXT_TYPES.has(type)) return null
  if (type === INT8) return Number
  if (type === INT8_LIST) return numbersOf
  return pg.types.getTypeParser(type, 'text')
}

/** @param list as `{1,2}`, without nulls */
function numbersOf(list: string): number[] {
  return list.length > 2 ? list.slice(1, -1).split(',').map(Number) : []
}

/** @returns a parameter in its binary form if it is a Buffer, else in its text form */
function parameterOf(value: unknown): string | Buffer | null {
  if (value === null || value === undefined) return null
  if (value instanceof Uint8Array) {
    return Buffer.isBuffer(value) ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength)
  }
  return Array.isArray(value) ? `{${value.map(elementOf).join(',')}}` : String(value)
}

/** PostgreSQL's manual, "Array Value Input". */
function elementOf(value: unknown): string {
  const parameter = parameterOf(value)
  if (parameter === null) return 'NULL'
  if (typeof parameter !== 'string') return `"\\\\x${parameter.toString('hex')}"`
  return typeof value === 'string' ? `"${parameter.replaceAll(/["\\]/g, '\\$&')}"` : parameter
}
