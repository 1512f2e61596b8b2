import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { cleanEnv, freePort, ROOT, start, untilUp, WITHOUT_LOADERS } from './child.ts'
import { copyContext, execForm, parseDockerfile, runDockerfile } from './dockerfile.ts'

// better-sqlite3 is compiled, which takes a minute or two.
t.setTimeout(600_000)

const instructions = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'))

/** npm hands its scripts a description of the project they belong to, which is not the one built here. */
function envForBuild(more: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const env = cleanEnv({ npm_config_prefer_offline: 'true' })
  const foreign = /^(npm_(package|lifecycle|command|execpath|config_local_prefix)|INIT_CWD|NODE_ENV)/
  return { ...Object.fromEntries(Object.entries(env).filter(([name]) => !foreign.test(name))), ...more }
}

t.test('the steps of the Dockerfile make a server that runs', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'settee-docker-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  const [context, stages] = [join(folder, 'context'), join(folder, 'stages')]
  await mkdir(stages)
  copyContext(ROOT, context)
  const image = runDockerfile(instructions, { context, stages }, (command, cwd, env) => {
    const [unsetting, ...unset] = WITHOUT_LOADERS
    const { status, stdout, stderr } = spawnSync(unsetting, [...unset, 'sh', '-c', command], {
      cwd,
      env: envForBuild(env),
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
  t.match(await health(), { code: 1 }, 'not healthy before')
  const server = start(t, command, args, { cwd, env })
  t.match(await untilUp(server, `http://127.0.0.1:${port}`), { status: 'ok' })
  t.match(await health(), { code: 0, stderr: '' }, 'healthy')
  server.process.kill('SIGTERM')
  t.match(await server.ended, { code: 0, stderr: '' })
})
