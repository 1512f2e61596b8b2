/** What each page takes for granted where its commands begin, and what stands in for names that are its reader's. */
import { cp, mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { ROOT } from '../cli/child.ts'
import type { Shell } from './shell.ts'

export interface Block {
  /** curl does not fail at a refusal, as on the reader's machine. */
  readonly hasPlainCurl?: boolean
  /** The server does not run meanwhile. */
  readonly isStopped?: boolean
  /** The command is a server, which is asked for `/_up` and stopped. */
  readonly isServer?: boolean
  /** That server is not stopped: the following blocks use it. */
  readonly staysUp?: boolean
  before?(shell: Shell): Promise<void>
}

export interface Page {
  /** Flags of the server; null: there is none at first. */
  readonly server: readonly string[] | null
  /** Brings about what commands cannot, and comes first. */
  prepare?(shell: Shell): Promise<void>
  /** Commands that bring about what the page takes for granted. */
  readonly before?: string
  /** Commands that show that the page has done what it is for. */
  readonly after?: string
  /** Names of the reader's machine, and what they are here. */
  names?(shell: Shell): Promise<Readonly<Record<string, string>>>
  /** By what their first command begins with. */
  readonly blocks?: Readonly<Record<string, Block>>
}

const ADMIN = 'http://anna:secret@127.0.0.1:5984'
/** An admin, and two databases with a note each. */
const NOTES = `
settee passwd anna --create
for db in notes plans; do
  curl -X PUT ${ADMIN}/$db
  curl -X PUT ${ADMIN}/$db/a -d '{"text":"a note"}'
done
`

async function newestBackup({ folder }: Shell): Promise<string> {
  const names = await readdir(join(folder, 'data', 'backups')).catch(() => [])
  return (
    names
      .filter((name) => /^\d{4}-.*Z$/.test(name))
      .sort()
      .at(-1) ?? 'none'
  )
}

const TWO_DATABASES = `
  curl -X PUT http://127.0.0.1:5984/notes
  curl -X PUT http://127.0.0.1:5984/plans
  curl -X PUT http://127.0.0.1:5984/notes/todo -d '{"text":"bread"}'`

const BACKUP: Page = {
  server: [],
  before: `${TWO_DATABASES}\nsettee passwd anna --create`,
  async names(shell) {
    const backup = await newestBackup(shell)
    return {
      '/mnt/usb/settee': join(shell.folder, 'usb'),
      '/path/to/2026-11-22T01-30-00Z': join(shell.folder, 'data', 'backups', backup),
      '/var/lib/settee': join(shell.folder, 'elsewhere'),
      '"2025-03-01 14:05"': new Date().toISOString(),
      '2025-03-01T14:05Z': new Date().toISOString(),
    }
  },
}

const UPGRADE: Page = {
  server: [],
  before: TWO_DATABASES,
  blocks: {
    'cp -a data': {
      isStopped: true,
      async before({ folder }) {
        const copies = join(folder, 'data', 'before-upgrade')
        await mkdir(join(copies, 'databases-4'), { recursive: true })
        await cp(
          join(folder, 'data', 'databases', 'notes.sqlite'),
          join(copies, 'databases-4', 'notes.sqlite'),
        )
        await mkdir(join(copies, 'server-2'))
        await cp(join(folder, 'data', 'server.sqlite'), join(copies, 'server-2', 'server.sqlite'))
      },
    },
  },
}

const SYNC_PARAMETERS = 'obsidian_livesync_sync_parameters'

/** A settee plays the CouchDB that is moved from. */
function moving(): Page {
  let old = ''
  return {
    server: [],
    async prepare(shell) {
      old = `http://admin:oldsecret@127.0.0.1:${await shell.startOther('oldsecret')}`
      const given = `
        settee passwd anna --create
        curl -X PUT ${old}/notes
        curl -X PUT ${old}/notes/a -d '{"text":"a note","_attachments":{"b":{"content_type":"text/plain","data":"eA=="}}}'
        curl -X PUT ${old}/notes/_security -d '{"members":{"names":["ben"]}}'
        curl -X PUT ${old}/notes/_local/${SYNC_PARAMETERS} -d '{"salt":"abc"}'
        curl -X PUT ${old}/_users/org.couchdb.user:ben -d '{"name":"ben","type":"user","roles":[],"password":"p"}'`
      const { code, output } = await shell.run(given)
      if (code !== 0) throw new Error(output)
    },
    async names() {
      return { 'http://admin:oldsecret@old:5984': old }
    },
    blocks: {
      // One of the documents exists on both servers, and has changed here; the other exists on neither.
      'for id in': {
        hasPlainCurl: true,
        async before(shell) {
          const put = `curl -X PUT ${ADMIN}/notes/_local/${SYNC_PARAMETERS} -d '{"_rev":"0-1","salt":"new"}'`
          const { code, output } = await shell.run(put)
          if (code !== 0) throw new Error(output)
        },
      },
    },
    after: `
      curl ${ADMIN}/notes/_security | grep '"ben"'
      curl http://ben:p@127.0.0.1:5984/notes/a/b | grep '^x$'
      curl http://ben:p@127.0.0.1:5984/notes/_local/${SYNC_PARAMETERS} | grep '"salt":"new"'
      curl http://admin:oldsecret@old:5984/notes/_local/${SYNC_PARAMETERS} | grep '"salt":"new"'
      (curl http://admin:oldsecret@old:5984/notes/_local/obsydian_livesync_milestone || true) | grep '^{"error":"not_found"'`,
  }
}

/** A settee plays the other servers. */
function replication(): Page {
  let other = ''
  return {
    server: [],
    async prepare(shell) {
      other = `127.0.0.1:${await shell.startOther('oldsecret')}`
      const { code, output } = await shell.run(`
        settee passwd anna --create
        curl -X PUT http://admin:oldsecret@${other}/notes
        curl -X PUT http://admin:oldsecret@${other}/notes/a -d '{"text":"a note"}'`)
      if (code !== 0) throw new Error(output)
    },
    async names() {
      return { 'old:5984': other, 'https://admin:password@rented.example': `http://admin:oldsecret@${other}` }
    },
    after: 'curl http://anna:secret@127.0.0.1:5984/notes/a | grep "a note"',
  }
}

/** A settee plays the primary. */
function standby(): Page {
  const standbyAdmin = ADMIN.replace('anna:secret', 'admin:oldsecret')
  let primary = ''
  return {
    server: [],
    async prepare(shell) {
      primary = `http://admin:oldsecret@127.0.0.1:${await shell.startOther('oldsecret')}`
      const { code, output } = await shell.run(`
        curl -X PUT ${primary}/notes
        curl -X PUT ${primary}/notes/a -d '{"text":"a note"}'`)
      if (code !== 0) throw new Error(output)
    },
    async names() {
      return {
        'http://admin:password@primary:5984': primary,
        // The commands of the page follow one another faster than a reader types.
        'curl ': 'curl --retry 60 --retry-delay 1 --retry-all-errors ',
        'http://admin:password@127.0.0.1': 'http://admin:oldsecret@127.0.0.1',
        'settee promote': `curl --retry 60 --retry-delay 1 --retry-all-errors ${standbyAdmin}/notes/a; settee promote`,
      }
    },
    after: `
      curl ${standbyAdmin}/notes/a | grep "a note"
      curl -X PUT ${standbyAdmin}/notes/b -d '{}'`,
  }
}

/** By their paths. A page that is not here has no commands. */
export const SCENES: Readonly<Record<string, Page>> = {
  'docs/inkdrop.md': { server: [] },
  'docs/livesync.md': { server: [], before: 'echo of the notes > vault.txt' },
  'docs/moving.md': moving(),
  'docs/replication.md': replication(),
  'docs/standby.md': standby(),
  'docs/backup.md': BACKUP,
  'docs/bad-disk.md': {
    server: [],
    before: NOTES,
    names: async ({ folder }) => ({ '/mnt/usb/settee': join(folder, 'usb') }),
  },
  'docs/upgrade.md': UPGRADE,
  'docs/operating.md': { server: [], before: TWO_DATABASES },
  'docs/doctor.md': {
    server: [],
    before: NOTES,
    names: async () => ({ '"$ADDRESS"': `${ADMIN}/notes` }),
  },
  'docs/hosted.md': {
    server: null,
    names: async () => ({ 'examples/': join(ROOT, 'examples/') }),
    blocks: { 'settee serve': { isServer: true, staysUp: true } },
    after: `
      curl http://ben:secret@127.0.0.1:5984/bens-notes/_all_docs?include_docs=true | grep 'edited on the phone'
      curl http://cora:secret@127.0.0.1:5984/_all_dbs | grep '^\\[\\]$'
      curl http://anna:secret@127.0.0.1:5984/_settee/accounts/ben | grep '"bytes":100000000'
      (curl http://cora:secret@127.0.0.1:5984/bens-notes || true) | grep 'Database does not exist'`,
  },
  'docs/pouchdb.md': { server: [] },
  'docs/proxy.md': { server: [], before: 'settee passwd anna --create' },
  'docs/settee-api.md': { server: [], before: `${NOTES}\nsettee account add bob` },
}
