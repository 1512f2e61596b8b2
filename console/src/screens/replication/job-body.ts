/** A new replication as the user enters it, checked and as the server takes it. Pure. */
import { findObjectFault } from '../../parts/json-editor/exact-json.ts'
import { en } from '../../strings/en.ts'

export interface EndpointInput {
  readonly place: 'here' | 'remote'
  /** Of a database of this server. */
  readonly database: string
  readonly address: string
  readonly name: string
  readonly password: string
}

export interface JobInput {
  readonly source: EndpointInput
  readonly target: EndpointInput
  readonly createsTarget: boolean
  readonly isContinuous: boolean
  /** Whether a document of `_replicator` keeps it. */
  readonly isKept: boolean
  /** The id of the document; empty: the server chooses one. */
  readonly id: string
  readonly only: 'all' | 'selector' | 'ids' | 'function'
  readonly selector: string
  /** One on each line. */
  readonly ids: string
  readonly filter: string
}

const NOWHERE: EndpointInput = { place: 'here', database: '', address: '', name: '', password: '' }

export const NEW_JOB: JobInput = {
  source: { ...NOWHERE, place: 'remote' },
  target: NOWHERE,
  createsTarget: true,
  isContinuous: false,
  isKept: true,
  id: '',
  only: 'all',
  selector: '{\n  "type": "note"\n}',
  ids: '',
  filter: '',
}

export type JobField = 'source' | 'target' | 'id' | 'selector' | 'ids' | 'filter'

const { faults: texts } = en.replication.newJob

/** The server's bound. */
const MAX_IDS = 10_000

/** @returns what is wrong with each field; empty: nothing */
export function jobFaults(input: JobInput): Readonly<Partial<Record<JobField, string>>> {
  const faults: Partial<Record<JobField, string>> = {}
  for (const role of ['source', 'target'] as const) {
    const fault = endpointFault(input[role])
    if (fault !== null) faults[role] = fault
  }
  const { source, target, only } = input
  const areBothHere = source.place === 'here' && target.place === 'here'
  if (areBothHere && source.database !== '' && source.database === target.database) {
    faults.target = texts.same
  }
  if (input.isKept && input.id.startsWith('_')) faults.id = texts.underscore
  if (only === 'selector' && findObjectFault(input.selector) !== null) faults.selector = texts.selector
  if (only === 'ids') {
    const { length } = idsOf(input.ids)
    if (length === 0) faults.ids = texts.noIds
    if (length > MAX_IDS) faults.ids = texts.manyIds(MAX_IDS)
  }
  if (only === 'function' && !/^[^_/][^/]*\/./.test(input.filter)) faults.filter = texts.filter
  return faults
}

export function endpointFault({ place, database, address }: EndpointInput): string | null {
  if (place === 'here') return database.trim() === '' ? texts.noName : null
  if (address.trim() === '') return texts.noAddress
  if (!/^https?:\/\//i.test(address.trim())) return texts.scheme
  if (!URL.canParse(address.trim())) return texts.address
  return new URL(address.trim()).pathname.replaceAll('/', '') === '' ? texts.noDatabase : null
}

/** The body of `POST /_replicate`, or the document. @param input without faults */
export function jobBody(input: JobInput): Readonly<Record<string, unknown>> {
  const { only } = input
  return {
    ...(input.isKept && input.id.trim() !== '' && { _id: input.id.trim() }),
    source: endpointBody(input.source),
    target: endpointBody(input.target),
    ...(input.createsTarget && { create_target: true }),
    ...(input.isContinuous && { continuous: true }),
    ...(only === 'selector' && { selector: JSON.parse(input.selector) as unknown }),
    ...(only === 'ids' && { doc_ids: idsOf(input.ids) }),
    ...(only === 'function' && { filter: input.filter.trim() }),
  }
}

function endpointBody({ place, database, address, name, password }: EndpointInput): unknown {
  if (place === 'here') return database.trim()
  const url = new URL(address.trim())
  const username = name || decoded(url.username)
  const secret = password || decoded(url.password)
  // In their own member, characters of a password need no escaping.
  url.username = ''
  url.password = ''
  return username === '' ? url.href : { url: url.href, auth: { basic: { username, password: secret } } }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function idsOf(text: string): readonly string[] {
  return [...new Set(text.split('\n').map((line) => line.trim()))].filter((line) => line !== '')
}
