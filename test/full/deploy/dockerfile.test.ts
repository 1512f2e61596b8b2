import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { validate } from 'dockerfile-utils'
import t from 'tap'
import { cleanNpmEnv, freePort, ROOT, start, untilUp, WITHOUT_LOADERS } from '../../cli/child.ts'
import { copyContext, execForm, parseDockerfile, runDockerfile } from './dockerfile.ts'

// better-sqlite3 is compiled, which takes a minute or two.
t.setTimeout(600_000)

const instructions = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'))

/**
 * Runs a command as an unknown account, if possible, in a file system in which only a new folder at the given path is
 * writable.
 */
function restricted(data: string): [string, ...string[]] {
  const isRoot = process.getuid?.() === 0
  const mounts = 'mount -t tmpfs -o mode=777 tmpfs "$1" && mount -o remount,bind,ro / && shift && exec "$@"'
  const account = isRoot ? ['setpriv', '--reuid=12345', '--regid=12345', '--clear-groups'] : []
  return ['unshare', isRoot ? '-m' : '-rm', 'sh', '-ec', mounts, 'sh', data, ...account]
}

t.test('the steps of the Dockerfile make a server that runs', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'settee-docker-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  await chmod(folder, 0o755)
  const [context, stages] = [join(folder, 'context'), join(folder, 'stages')]
  await mkdir(stages)
  copyContext(ROOT, context)
  const image = runDockerfile(instructions, { context, stages }, (command, cwd, env) => {
    const [unsetting, ...unset] = WITHOUT_LOADERS
    const { status, stdout, stderr } = spawnSync(unsetting, [...unset, 'sh', '-c', command], {
      cwd,
      env: cleanNpmEnv(env),
      encoding: 'utf8',
    })
    t.equal(status, 0, `RUN ${command}`, { stdout, stderr })
  })

  t.match(image.last.get('USER')?.rest, /^(?!root|0)\w+$/, 'an account of its own')
  t.equal(image.env.SETTEE_BIND, '0.0.0.0')
  t.equal(image.last.get('VOLUME')?.rest, image.env.SETTEE_DATA)
  t.ok(existsSync(join(image.root, image.env.SETTEE_DATA!)), 'the volume’s folder is there, with its owner')
  t.equal(image.last.get('EXPOSE')?.rest, '5984')
  const cwd = join(image.root, image.workdir)
  for (const name of ['src', 'node_modules/typescript', 'node_modules/tap']) {
    t.notOk(existsSync(join(cwd, name)), `${name} stays behind`)
  }

  const port = await freePort()
  const env = {
    ...image.env,
    SETTEE_PORT: String(port),
    SETTEE_DATA: join(image.root, image.env.SETTEE_DATA!),
  }
  const [command = '', ...args] = [
    ...execForm(image.last.get('ENTRYPOINT')),
    ...execForm(image.last.get('CMD')),
  ]
  const [probe = '', ...probeArgs] = execForm(image.last.get('HEALTHCHECK'))
  const health = () => start(t, probe, probeArgs, { cwd, env }).ended
  t.match(await health(), { code: 1 }, 'the health check fails before the start')
  const server = start(t, command, args, { cwd, env })
  t.match(await untilUp(server, `http://127.0.0.1:${port}`), { status: 'ok' })
  t.match(await health(), { code: 0, stderr: '' }, 'healthy')
  server.process.kill('SIGTERM')
  t.match(await server.ended, { code: 0, stderr: '' })

  const [wrap, ...wrapArgs] = restricted(env.SETTEE_DATA)
  const bound = start(t, wrap, [...wrapArgs, command, ...args], { cwd, env })
  const url = `http://127.0.0.1:${port}`
  t.match(await untilUp(bound, url), { status: 'ok' }, 'as any account, all but /data read-only')
  t.equal((await fetch(`${url}/notes`, { method: 'PUT' })).status, 201)
  t.equal((await fetch(`${url}/notes/a`, { method: 'PUT', body: '{}' })).status, 201)
  bound.process.kill('SIGTERM')
  t.match(await bound.ended, { code: 0, stderr: '' })
})

t.test('a linter of Dockerfiles finds nothing', async (t) => {
  t.same(validate(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')), [])
})
