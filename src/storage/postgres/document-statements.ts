/**
 * The statements that read documents. Each reads the database's row, rows of `doc` and rows of `revision` as one result,
 * so that all are of one moment. What it reads beyond the documents' rows is its {@link Shape}: there is a statement for
 * each source and shape that is used.
 */
import type { Query, Statement } from './connections.ts'
import { VIEW_COLUMNS } from './database-view.ts'

/** What a statement reads of each document beyond its row. */
export interface Shape {
  /** The winner's body and attachments, or its attachments alone. */
  readonly content: 'body' | 'attachments' | null
  /** The other leaves. */
  readonly leaves: boolean
  /** The bodies and attachments of the other leaves. */
  readonly bodies: boolean
  /** The ancestry of the winner; of each leaf; of the leaves from a generation on. */
  readonly ancestry: 'winner' | 'leaves' | 'from' | null
  /** The superseded revisions, without their contents. */
  readonly superseded: boolean
  /** The times and sizes of revisions. */
  readonly versions: boolean
  /** Revisions that are named, with their attachments. */
  readonly named: boolean
  /** The winner's {@link WriteFacts}. */
  readonly writeFacts: boolean
}

/** Where a statement finds documents. In braces stand the names of its values. */
export interface Source {
  /** A part of the statement's name. */
  readonly name: string
  /** Selects rows of `doc` as x. */
  readonly from: string
  readonly where?: string
  /** Whether it is one document by its id. */
  readonly isOne?: true
  /** Longer bodies are not read, in bytes. */
  readonly maxBody?: number
  /** Of a page: the order, and how it is bounded. */
  readonly page?: {
    readonly order: string
    /** `places`: all rows are read, but bodies only up to the bound. */
    readonly bound: 'rows' | 'bytes' | 'places'
  }
  /** The ids of which rows of `revision` are read: a FROM item, and its column. Absent: those of the page. */
  readonly ids?: { readonly from: string; readonly id: string }
  /** The generation from which on ancestries are read: of the winner, and of other leaves. */
  readonly generations: { readonly winner: string; readonly leaf: string }
}

/** Bytes of named revisions' bodies that one statement reads, unless the first of them is longer. */
export const MAX_NAMED_BYTES = 8 * 1024 * 1024
/** What a leaf counts for in the bound of a page, in bytes, without its body and its ancestry. */
const LEAF_BYTES = 64

/** The places of the columns that depend on the shape. */
export interface Columns {
  /** The first of three: the attachments, the checksum of the content, and the body. */
  readonly content: number
  /** The first of two: with its checksum. */
  readonly ancestry: number
  readonly ancestryBytes: number
  /** The first of six. */
  readonly versions: number
  /** Whether another document follows, in a page. */
  readonly next: number
  /** The first of three. */
  readonly writeFacts: number
}

export interface DocumentStatement extends Statement {
  readonly columns: Columns
  /** The names of the values, in order. */
  readonly names: readonly string[]
}

/** A column, by the arm of the union. Absent: NULL of this type. */
interface Column {
  readonly type: string
  readonly view?: string
  readonly doc?: string | undefined
  readonly leaf?: string | undefined
  readonly superseded?: string | undefined
  readonly named?: string | undefined
}

type Arm = Exclude<keyof Column, 'type'>

/** The statements by the names of their sources and shapes. */
const statements = new Map<string, Map<string, DocumentStatement>>()

/** @returns the statement for a source and a shape; equal ones are made once */
export function documentStatement(source: Source, shape: Shape): DocumentStatement {
  let ofSource = statements.get(source.name)
  if (ofSource === undefined) {
    ofSource = new Map()
    statements.set(source.name, ofSource)
  }
  const name = nameOf(shape)
  let statement = ofSource.get(name)
  if (statement === undefined) {
    statement = makeStatement(`docs_${source.name}_${name}`, source, shape)
    ofSource.set(name, statement)
  }
  return statement
}

/** @param value that of a name */
export function bound({ name, text, names }: DocumentStatement, value: (name: string) => unknown): Query {
  return { name, text, values: names.map(value) }
}

/** A letter for each part. */
function nameOf({
  content,
  leaves,
  bodies,
  ancestry,
  superseded,
  versions,
  named,
  writeFacts,
}: Shape): string {
  let name: string = content === null ? '' : content === 'body' ? 'b' : 'a'
  if (ancestry !== null) name += ancestry === 'winner' ? 'W' : ancestry === 'leaves' ? 'L' : 'F'
  if (leaves) name += 'l'
  if (bodies) name += 'B'
  if (superseded) name += 's'
  if (versions) name += 'v'
  if (named) name += 'n'
  if (writeFacts) name += 'w'
  return name
}

function makeStatement(name: string, source: Source, shape: Shape): DocumentStatement {
  const { columns, all } = columnsOf(source, shape)
  const list = (arm: Arm) => all.map((column) => column[arm] ?? `NULL::${column.type}`).join(', ')
  const { page } = source
  const isShared = page !== undefined && (shape.leaves || shape.superseded)
  const documents =
    page === undefined ? fromWhere(source) : isShared ? 'page x' : `(${pageOf(source, shape)}) x`
  const others = (condition: string, onlyIf: string) =>
    source.ids === undefined
      ? `page x ${eachRevision(`r.id = x.id AND ${condition}`)} WHERE ${onlyIf}`
      : `${source.ids.from} ${eachRevision(`r.id = ${source.ids.id} AND ${condition}`)}`
  const arms = [
    `SELECT ${list('view')} FROM database d WHERE d.db = {db}`,
    `SELECT ${list('doc')} FROM ${documents}`,
  ]
  if (shape.leaves) arms.push(`SELECT ${list('leaf')} FROM ${others('r.leaf', 'x.leaves > 1')}`)
  if (shape.superseded) {
    const newest = shape.versions ? ' ORDER BY r.place DESC LIMIT {versionsLimit}' : ''
    const rows = `SELECT ${list('superseded')} FROM ${others(`NOT r.leaf${shape.versions ? VERSION_RANGE : ''}`, 'true')}`
    arms.push(source.isOne ? `(${rows}${newest})` : rows)
  }
  if (shape.named) arms.push(`SELECT ${list('named')} FROM (${NAMED}) r`)
  const text = `${isShared ? `WITH page AS MATERIALIZED (${pageOf(source, shape)}) ` : ''}${arms.join(' UNION ALL ')}`
  return { name, columns, ...numbered(text) }
}

const VERSION_RANGE =
  ' AND r.place < {versionsBefore} AND coalesce(r.superseded_at, 0) > {leavesAfter} AND (r.stored_at IS NULL OR r.stored_at <= {storedBy})'

/**
 * Joins rows so that PostgreSQL looks each of them up. It plans a statement once for all databases. Where most databases
 * are small, or the tables still empty, it would rather read all rows of a database and compare them.
 */
function each(table: string, alias: string, condition: string): string {
  return `CROSS JOIN LATERAL (SELECT * FROM ${table} ${alias} WHERE ${alias}.db = {db} AND ${condition} OFFSET 0) ${alias}`
}

/** Each revision that a condition names, as r. */
function eachRevision(condition: string): string {
  return each('revision', 'r', condition)
}

/** Each document that a condition names, as x. */
export function eachDocument(condition: string): string {
  return each('doc', 'x', condition)
}

function fromWhere({ from, where }: Source): string {
  return where === undefined ? from : `${from} WHERE ${where}`
}

/** Bodies are bounded by a sum in the order in which the revisions are named. */
const NAMED = `
SELECT r.*, n.with_body, sum(CASE WHEN n.with_body THEN octet_length(r.body) ELSE 0 END)
    OVER (ORDER BY n.place ROWS UNBOUNDED PRECEDING) - octet_length(r.body) AS before
  FROM unnest({namedIds}::text[], {namedRevs}::text[], {namedBodies}::boolean[]) WITH ORDINALITY n(id, rev, with_body, place)
  ${eachRevision('r.id = n.id AND r.rev = n.rev')}`

/** Replaces names in braces by numbers. */
export function numbered(text: string): { readonly text: string; readonly names: readonly string[] } {
  const names: string[] = []
  const replaced = text.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    if (!names.includes(name)) names.push(name)
    return `$${names.indexOf(name) + 1}`
  })
  return { text: replaced, names }
}

function columnsOf(
  source: Source,
  shape: Shape,
): { readonly columns: Columns; readonly all: readonly Column[] } {
  const [updateSeq, docCount, deletedCount, settingsVersion] = VIEW_COLUMNS.split(', ') as string[]
  const ofRevision = (column: string) => ({ leaf: column, superseded: column, named: column })
  const all: Column[] = [
    { type: 'text', doc: 'x.id', ...ofRevision('r.id') },
    { type: 'text', doc: 'x.rev', ...ofRevision('r.rev') },
    { type: 'boolean', doc: 'x.deleted', ...ofRevision('r.deleted') },
    { type: 'bigint', view: updateSeq as string, doc: 'x.seq' },
    { type: 'bigint', view: docCount as string, doc: 'x.version' },
    { type: 'bigint', view: deletedCount as string, doc: 'x.first_seq' },
    {
      type: 'bigint',
      view: settingsVersion as string,
      doc: 'x.leaves::bigint',
      ...ofRevision('CASE WHEN r.leaf THEN 1 WHEN r.retained THEN 2 ELSE 0 END::bigint'),
    },
    { type: 'integer', doc: 'x.checksum::integer' },
  ]
  const add = (...columns: Column[]) => all.push(...columns) - columns.length
  const hasContent = shape.content !== null || shape.bodies || shape.named
  const content = hasContent ? add(...contentColumns(shape), bodyColumn(source, shape)) : -1
  const ancestry = shape.ancestry === null ? -1 : add(ancestryColumn(source, shape), ANCESTRY_CHECKSUM)
  const bytes = { type: 'integer', doc: 'octet_length(x.ancestry)', leaf: 'octet_length(r.ancestry)' }
  const ancestryBytes = shape.leaves ? add({ ...bytes, named: bytes.leaf }) : -1
  const versions = shape.versions ? add(...VERSION_COLUMNS) : -1
  const next = source.page === undefined ? -1 : add({ type: 'boolean', doc: 'x.next' })
  const writeFacts = shape.writeFacts ? add(...WRITE_FACTS) : -1
  return {
    columns: { content, ancestry, ancestryBytes, versions, next, writeFacts },
    all,
  }
}

function bodyColumn({ page, maxBody }: Source, { content, bodies, named }: Shape): Column {
  const isWanted = `r.with_body AND r.before < ${MAX_NAMED_BYTES}`
  const isRead =
    page?.bound === 'places' ? 'x.before < {bytes}' : maxBody && `octet_length(x.body) <= ${maxBody}`
  const ofWinner = isRead ? `CASE WHEN ${isRead} THEN x.body END` : 'x.body'
  return {
    type: 'text',
    doc: content === 'body' ? ofWinner : undefined,
    leaf: bodies ? 'r.body' : undefined,
    named: named ? `CASE WHEN ${isWanted} THEN r.body END` : undefined,
  }
}

/** The attachments, of which an empty text stands for none, and NULL for what was not read; and the checksum of the content. */
function contentColumns({ content, bodies, named }: Shape): Column[] {
  const column = (type: string, of: (table: string) => string): Column => ({
    type,
    doc: content === null ? undefined : of('x'),
    leaf: bodies ? of('r') : undefined,
    named: named ? of('r') : undefined,
  })
  return [
    column('text', (table) => `coalesce(${table}.attachments, '')`),
    column('integer', (table) => `${table}.content_checksum`),
  ]
}

function ancestryColumn({ generations }: Source, { ancestry }: Shape): Column {
  // A damaged revision has no number: the statement must not fail for it.
  const position = (table: string) => `substring(${table}.rev FROM '^([0-9]{1,15})-')::bigint`
  if (ancestry !== 'from') {
    return { type: 'bytea', doc: 'x.ancestry', leaf: ancestry === 'leaves' ? 'r.ancestry' : undefined }
  }
  const { winner, leaf } = generations
  return {
    type: 'bytea',
    doc: `CASE WHEN ${position('x')} >= ${winner} THEN x.ancestry END`,
    leaf: `CASE WHEN ${position('r')} >= ${leaf} OR r.rev = ANY({leafRevs}::text[]) THEN r.ancestry END`,
  }
}

const ANCESTRY_CHECKSUM: Column = {
  type: 'integer',
  doc: 'x.ancestry_checksum',
  leaf: 'r.ancestry_checksum',
}

const WRITE_FACTS: readonly Column[] = [
  { type: 'bigint', doc: 'x.size' },
  { type: 'integer', doc: 'octet_length(x.body)' },
  { type: 'integer', doc: 'octet_length(x.ancestry)' },
  { type: 'boolean', doc: 'x.attachments IS NOT NULL' },
]

const VERSION_COLUMNS: readonly Column[] = (
  [
    ['bigint', 'place'],
    ['bigint', 'stored_at'],
    ['bigint', 'superseded_at'],
    ['bigint', 'grown_at'],
    ['bigint', 'size'],
    ['integer', 'attachments'],
  ] as const
).map(([type, column]) => {
  const of = (table: string) =>
    column === 'attachments'
      ? // Of a damaged list as well, which is no JSON. In names, quotes are escaped.
        `coalesce(regexp_count(${table}.attachments, '"blob":[0-9]+[}]'), 0)`
      : `${table}.${column}`
  const doc = column === 'superseded_at' ? undefined : of('x')
  return { type, doc, leaf: of('r'), superseded: of('r'), named: of('r') }
})

/** The documents of a page in their order; `next` says whether another one follows. */
function pageOf(source: Source, shape: Shape): string {
  const { page } = source
  if (page === undefined) return ''
  const { order, bound } = page
  const wanted = [
    'id',
    'rev',
    'deleted',
    'seq',
    'version',
    'first_seq',
    'leaves',
    'checksum',
    ...(shape.content === 'body' ? ['body'] : []),
    ...(shape.content !== null || shape.versions ? ['attachments', 'content_checksum'] : []),
    ...(shape.ancestry !== null || shape.leaves ? ['ancestry', 'ancestry_checksum'] : []),
    ...(shape.versions ? ['place', 'stored_at', 'grown_at', 'size'] : []),
  ]
  const list = wanted.map((column) => `x.${column}`).join(', ')
  if (bound === 'places') {
    const rows = `SELECT ${list}, n.winner_gen, n.leaf_gen, n.place AS nth FROM ${fromWhere(source)}`
    return `SELECT x.*, sum(${weightOf(shape)}) OVER w - (${weightOf(shape)}) AS before, NULL::boolean AS next FROM (${rows}) x WINDOW w AS (ORDER BY x.nth ROWS UNBOUNDED PRECEDING)`
  }
  const rows = `SELECT ${list} FROM ${fromWhere(source)} ORDER BY ${order} LIMIT {limit}::bigint + 1`
  if (bound === 'rows') return `SELECT x.*, NULL::boolean AS next FROM (${rows}) x`
  const counted = `SELECT x.*, sum(${weightOf(shape)}) OVER w - (${weightOf(shape)}) AS before, row_number() OVER w AS nth, lead(true) OVER w AS next FROM (${rows}) x WINDOW w AS (ORDER BY ${order} ROWS UNBOUNDED PRECEDING)`
  return `SELECT x.* FROM (${counted}) x WHERE x.before < {bytes} AND x.nth <= {limit}::bigint`
}

/** Bytes of what is read of a document. */
function weightOf({ content, leaves, bodies, ancestry }: Shape): string {
  const sums = [
    ...(content === 'body' ? ['octet_length(x.body)'] : []),
    ...(ancestry === null ? [] : ['octet_length(x.ancestry)']),
  ]
  if (bodies) {
    const ofLeaves = `SELECT sum(octet_length(r.body)) FROM revision r WHERE r.db = {db} AND r.id = x.id AND r.leaf`
    sums.push(`CASE WHEN x.leaves > 1 THEN (${ofLeaves}) ELSE 0 END`)
  }
  if (leaves)
    sums.push(
      `${LEAF_BYTES} * (x.leaves - 1)${ancestry === 'leaves' ? ' * (1 + octet_length(x.ancestry) / 64)' : ''}`,
    )
  return sums.length === 0 ? '0' : sums.join(' + ')
}
