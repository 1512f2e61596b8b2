/**
 * Every route that takes a body, with the largest bodies that fit into few bytes of gzip, from the weakest caller who may
 * call it. Made from the route table: a new route joins by itself.
 */
import type { Access, Path } from '../../../src/http/route-table.ts'
import { zipped } from './bodies.ts'
import type { Attack } from './measure.ts'
import type { Caller, Sent } from './world.ts'

export interface RouteAttack {
  /** Method and pattern. */
  readonly name: string
  readonly run: Attack
}

const MB = 1024 * 1024

/** What a body may be made of: many elements, many members, deep ones, long ones, each where some route looks for it. */
const SHAPES: Readonly<Record<string, () => string>> = {
  members: () => `{${many((n) => `"m${n}":["1-a"]`, 8 * MB)}}`,
  elements: () => `{"a":[${many(() => '{}', 8 * MB)}]}`,
  docs: () => `{"docs":[${many((n) => `{"id":"${n}"}`, 8 * MB)}]}`,
  documents: () => `{"new_edits":false,"docs":[${many((n) => `{"_id":"${n}"}`, 8 * MB)}]}`,
  keys: () => `{"keys":[${many((n) => `"${n}"`, 8 * MB)}],"doc_ids":[${many((n) => `"${n}"`, 8 * MB)}]}`,
  queries: () => `{"queries":[${many(() => '{}', 8 * MB)}]}`,
  selector: () => `{"selector":{"$or":[${many((n) => `{"a":${n}}`, 8 * MB)}]}}`,
  names: () => `{"members":{"names":[${many((n) => `"${n}"`, 8 * MB)}]},"admins":{"roles":[]}}`,
  depth: () => `{"a":${'['.repeat(MB)}${']'.repeat(MB)}}`,
  text: () => `{"name":"${'n'.repeat(16 * MB)}","password":"p","x":1}`,
  value: () => `"${'v'.repeat(16 * MB)}"`,
}

/** Who may call a route and has the least to lose. */
const WEAKEST: Readonly<Record<Access, Caller>> = {
  public: 'stranger',
  user: 'tenant',
  member: 'tenant',
  lister: 'tenant',
  'db admin': 'tenant',
  maintainer: 'tenant',
  tenant: 'tenant',
  owner: 'tenant',
  'db admin or owner': 'tenant',
  metrics: 'admin',
  'server admin': 'admin',
}

/** What stands for the parameters of a pattern; others are `x`. */
const PARAMETERS: Readonly<Record<string, string>> = { db: 'of-caller', node: '_local', section: 'harmless' }

/** @returns an attack for each method of each path that may bring a body */
export function routeAttacks(paths: readonly Path[]): RouteAttack[] {
  return paths.flatMap((path) =>
    Object.entries(path.methods)
      .filter(([name]) => name === 'POST' || name === 'PUT')
      .map(([method, { access }]) => ({
        name: `${method} ${path.url}`,
        run: onceEach(method, addressOf(path.url), WEAKEST[access ?? path.access]),
      })),
  )
}

/** Sends all shapes at once, a connection each. */
function onceEach(method: string, path: string, caller: Caller): Attack {
  return async (world, signal) => {
    const answers: Record<number, number> = {}
    await Promise.all(
      Object.entries(SHAPES).map(async ([name, make]) => {
        const status = await world.send(sent(method, path, caller, zipped(name, make)), signal)
        answers[status] = (answers[status] ?? 0) + 1
      }),
    )
    return answers
  }
}

function sent(method: string, path: string, caller: Caller, body: Uint8Array): Sent {
  return { method, path, caller, headers: { 'content-encoding': 'gzip' }, body }
}

function addressOf(pattern: string): string {
  return pattern
    .split('/')
    .map((segment) => {
      if (segment.startsWith(':')) return PARAMETERS[segment.slice(1)] ?? 'x'
      return segment.replace('*', 'x')
    })
    .join('/')
}

/** As many items as fit into some bytes. */
function many(item: (n: number) => string, bytes: number): string {
  const items: string[] = []
  for (let n = 0, length = 0; length < bytes; n += 1) {
    const text = item(n)
    items.push(text)
    length += text.length + 1
  }
  return items.join(',')
}
