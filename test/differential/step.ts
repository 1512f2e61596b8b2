/** A request of a case, with names in place of what only the servers know. */

/** A request that both servers get. In its path, its headers and its body, names such as `{db}` stand for values: see {@link Kept}. */
export interface Step {
  readonly method: string
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Buffer
  /** `name:password` in place of the admin's; null: without credentials. */
  readonly auth?: string | null
  /** Sent once the request is on its way: a change that a feed waits for. */
  readonly meanwhile?: Step
  /** Ask again until the JSON of the answer has this: a state that a server reaches by itself. */
  readonly until?: RegExp
}

/** The server with its admin's credentials: `{self}`; databases and an account with the serial of the case: `{db}`, `{other}`, `{repl}`, `{user}`, and the account's revision: `{rev:account}`. */
const NAMES = /\{(self|db|other|repl|user|seq|bookmark|etag|(?:rev|old):[^{}]*)\}/g

/** A revision that nobody has. */
export const NO_REVISION = `7-${'7'.repeat(32)}`

/** What one server has said in the course of a case, by name: revisions of documents, the last sequence token, a bookmark. */
export class Kept {
  readonly #values = new Map<string, string>()

  /**
   * @param serial makes the names of the case's databases and accounts unique
   * @param self the server's address, with the credentials of its admin
   */
  constructor(serial: string, self: string) {
    this.#values.set('self', self)
    this.#values.set('db', `diff-${serial}`)
    this.#values.set('other', `diff-${serial}-other`)
    this.#values.set('repl', `diff-${serial}/_replicator`)
    this.#values.set('user', `diff-${serial}`)
  }

  setRevision(id: string, rev: string): void {
    const before = this.#values.get(`rev:${id}`)
    if (before === rev) return
    if (before !== undefined) this.#values.set(`old:${id}`, before)
    this.#values.set(`rev:${id}`, rev)
  }

  set(name: 'seq' | 'bookmark' | 'etag', value: string): void {
    this.#values.set(name, value)
  }

  get(name: string): string {
    const value = this.#values.get(name)
    if (value !== undefined) return value
    if (name === 'seq') return '0'
    if (name === 'bookmark') return ''
    return name === 'etag' ? 'none' : NO_REVISION
  }

  filled(text: string): string {
    return text.replace(NAMES, (_, name: string) => this.get(name))
  }

  /** In an address, where names may be percent-encoded and values must be. */
  filledPath(path: string): string {
    return path
      .replaceAll(
        /%7B([a-z]+(?:%3A(?:(?!%7[BD]).)*)?)%7D/g,
        (_, name: string) => `{${decodeURIComponent(name)}}`,
      )
      .replace(NAMES, (_, name: string) => encodeURIComponent(this.get(name)))
  }
}

/** A case: requests in order to databases of its own. */
export interface Case {
  readonly seed: number
  readonly steps: readonly Step[]
}

/** The call that a step makes: its method, and its path with names in place of ids. */
export function callOf({ method, path }: Step): string {
  const [address = ''] = path.split('?')
  const place = address
    .replace(/^(\/\{(?:db|other|repl)\}|\/_users)/, '/{db}')
    .replace(/^(\/\{db\}\/_partition)\/[^/]+/, '$1/{partition}')
    .replace(/\/_design(?:\/|%2F)[^/]+/, '/_design/{ddoc}')
    .replace(/\/_local(?:\/|%2F).*/, '/_local/{doc}')
    .replace(/\/_(view|list|show|update|rewrite)\/.*?(\/queries)?$/, '/_$1/x$2')
    .replace(/^(\/\{db\}\/(?!_)[^/]+|\/\{db\}\/_design\/\{ddoc\})\/(?!_).*/, '$1/{attachment}')
    .replace(/^\/\{db\}\/(?!_)[^/]+/, '/{db}/{doc}')
    .replace(/^(\/_scheduler\/\w+|\/\{db\}\/_compact|\/\{db\}\/_index|\/_node\/_local\/_config)\/.*/, '$1/x')
  return `${method} ${place}`
}

/** The line of a step, for people. */
export function shown(step: Step): string {
  const { method, path, headers, body, auth, meanwhile } = step
  return [
    `${method} ${path}`,
    ...(auth !== undefined ? [`as ${auth ?? 'nobody'}`] : []),
    ...(headers ? [JSON.stringify(headers)] : []),
    ...(body !== undefined ? [typeof body === 'string' ? body : `base64 ${body.toString('base64')}`] : []),
    ...(meanwhile ? [`meanwhile: ${shown(meanwhile)}`] : []),
  ].join('  ')
}
