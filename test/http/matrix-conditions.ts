/** The servers of the rights matrix, and the names in its rows: matrix.ts. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { settled, startTestServer, type TestResponse, temporaryFolder } from '../helpers/server.ts'
import { CALLERS, type Caller, type Condition, type Sent } from './matrix.ts'

/** A name that is not part of any other name. */
export const DATABASE = 'notes-of-d'
const OTHERS = 'notes-of-o'
const PUBLIC = 'public'
const SECURITY = { admins: { names: ['d'] }, members: { names: ['m'] } }
const MAP = 'function (doc) { emit(doc._id) }'
const DESIGN = { views: { v: { map: MAP } }, filters: { all: 'function () { return true }' } }
const FILE = { a: { content_type: 'text/plain', data: 'dGV4dA==' } }

export interface Asked {
  readonly method: string
  readonly path: string
  readonly sent: Sent
}

/** The credentials as headers. */
export type Credentials = Readonly<Record<string, string>>

/** @returns the headers of a name with its password */
export function basic(name: string, password = name): Credentials {
  return { authorization: `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}` }
}

export interface MatrixServer {
  readonly condition: Condition
  /** False: it is a node of several, whose data are elsewhere. */
  readonly hasFiles: boolean
  ask(caller: Caller, asked: Asked): Promise<TestResponse>
  /** The same with whatever credentials. */
  askWith(credentials: Credentials, asked: Asked): Promise<TestResponse>
  /** Puts names into what is to be asked, and makes what they name. */
  prepare(method: string, path: string, sent?: Sent): Promise<Asked>
  /** Waits until every node knows what was made. */
  settle(): Promise<void>
  /** What a server admin does, who must succeed. */
  admin(method: string, path: string, json?: unknown): Promise<TestResponse>
}

/** A complete server with its accounts and databases. */
export async function startCondition(t: Test, condition: Condition): Promise<MatrixServer> {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), settings(condition))
  const server = await startTestServer(t, { dataDir, hosted: condition === 'hosted' })
  const { url, request } = server
  const askWith: MatrixServer['askWith'] = (credentials, { method, path, sent }) =>
    request(method, path, { body: sent.json ?? sent.body, headers: { ...sent.headers, ...credentials } })
  const ask: MatrixServer['ask'] = (caller, asked) =>
    askWith(caller === 'anonymous' ? {} : basic(caller), asked)
  const must = async (caller: Caller, method: string, path: string, json?: unknown) => {
    const answer = await ask(caller, { method, path, sent: json === undefined ? {} : { json } })
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }
  const maker = new Maker(condition, url, must)
  await maker.begin()
  return {
    condition,
    hasFiles: server.settingsMs === undefined,
    ask,
    askWith,
    prepare: (method, path, sent = {}) => maker.prepare(method, path, sent),
    settle: () => settled(server),
    admin: (method, path, json) => must('s', method, path, json),
  }
}

/** No rate limits, and more databases than a tenant may have. */
function settings(condition: Condition): string {
  const admin = condition === 'open' ? '' : '[admins]\ns = s\n'
  return `${admin}[chttpd_auth]\niterations = 10\n[quota]\nrequests = infinity\ndatabases = infinity\n`
}

type Must = (caller: Caller, method: string, path: string, json?: unknown) => Promise<TestResponse>
type Names = Readonly<Record<string, string>>

class Maker {
  readonly #isHosted: boolean
  readonly #url: string
  readonly #must: Must
  #serial = 0
  /** What stands for a name, and maybe for another with it, in one request. */
  readonly #makers: Readonly<Record<string, (n: string) => Names | Promise<Names>>> = {
    db: () => ({ db: DATABASE }),
    others: () => ({ others: OTHERS }),
    url: () => ({ url: this.#url }),
    rev: () => ({}),
    own: async (n) => {
      await this.#makeDatabase(`own-${n}`, 'd', SECURITY)
      return { own: `own-${n}` }
    },
    /** Everybody is a member. */
    public: () => ({ public: PUBLIC }),
    /** A server admin has made it, and has not said for whom. */
    closed: async (n) => {
      await this.#must('s', 'PUT', `/closed-${n}`)
      return { closed: `closed-${n}` }
    },
    /** Of `d`, who is no member of it. */
    shared: async (n) => {
      await this.#makeDatabase(`shared-${n}`, 'd', { admins: { names: ['e'] }, members: { names: ['m'] } })
      return { shared: `shared-${n}` }
    },
    doc: (n) => this.#makeDocument('doc', `doc-${n}`, this.#withFile({})),
    ddoc: (n) => this.#makeDesign(`ddoc-${n}`),
    local: async (n) => {
      await this.#must('s', 'PUT', `/${DATABASE}/_local/local-${n}`, {})
      return { local: `local-${n}` }
    },
    key: async (n) => {
      await this.#must('s', 'PUT', `/_node/_local/_config/matrix/made-${n}`, '"x"')
      return { key: `made-${n}` }
    },
    account: async (n) => {
      await this.#makeAccount(`account-${n}`)
      return { account: `account-${n}` }
    },
    token: async (n) => {
      const { json } = await this.#must('s', 'POST', '/_settee/tokens?account=m', { name: `made-${n}` })
      return { token: (json as { id: string }).id }
    },
  }

  constructor(condition: Condition, url: string, must: Must) {
    this.#isHosted = condition === 'hosted'
    this.#url = url
    this.#must = must
  }

  async begin(): Promise<void> {
    await this.#makeAccount('e')
    for (const name of CALLERS) if (name !== 'anonymous' && name !== 's') await this.#makeAccount(name)
    await this.#makeDatabase(DATABASE, 'd', SECURITY)
    await this.#makeDatabase(OTHERS, 'o', { admins: { names: ['o'] }, members: { names: ['o'] } })
    await this.#makeDatabase(PUBLIC, 'd', { ...SECURITY, members: { names: [], roles: [] } })
    await this.#must('s', 'PUT', `/${OTHERS}/doc`, {})
    await this.#must('s', 'PUT', `/${DATABASE}/doc`, this.#withFile({}))
    await this.#must('s', 'PUT', `/${DATABASE}/_local/l`, {})
    if (!this.#isHosted) await this.#must('s', 'PUT', `/${DATABASE}/_design/d`, this.#withFile(DESIGN))
  }

  async prepare(method: string, path: string, sent: Sent): Promise<Asked> {
    const n = String(this.#serial++)
    const text = JSON.stringify([path, sent])
    const names: Record<string, string> = { n }
    for (const [, name = ''] of text.matchAll(/\{(\w+)\}/g)) {
      if (Object.hasOwn(names, name)) continue
      const make = this.#makers[name]
      if (make === undefined) throw new Error(`{${name}} stands for nothing`)
      Object.assign(names, await make(n))
    }
    const [named, filled] = JSON.parse(
      text.replace(/\{(\w+)\}/g, (_, name: string) => names[name] ?? ''),
    ) as [string, Sent]
    return { method, path: named, sent: filled }
  }

  async #makeAccount(name: string): Promise<void> {
    const user = { name, type: 'user', roles: [], password: name }
    await this.#must('s', 'PUT', `/_users/org.couchdb.user:${name}`, user)
  }

  /** By whom it is to belong to, where that makes a difference. */
  async #makeDatabase(name: string, owner: Caller, security: object): Promise<void> {
    await this.#must(this.#isHosted ? owner : 's', 'PUT', `/${name}`)
    await this.#must(this.#isHosted ? owner : 's', 'PUT', `/${name}/_security`, security)
  }

  async #makeDocument(name: string, id: string, doc: object, prefix = ''): Promise<Names> {
    const { json } = await this.#must('s', 'PUT', `/${DATABASE}/${prefix}${id}`, doc)
    return { [name]: id, rev: (json as { rev: string }).rev }
  }

  /** One that is not there, where there are none. */
  async #makeDesign(id: string): Promise<Names> {
    if (this.#isHosted) return { ddoc: id, rev: `1-${'0'.repeat(32)}` }
    return this.#makeDocument('ddoc', id, this.#withFile({}), '_design/')
  }

  #withFile(doc: object): object {
    return this.#isHosted ? doc : { ...doc, _attachments: FILE }
  }
}
