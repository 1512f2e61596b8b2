import { readFile } from 'node:fs/promises'
import { pino } from 'pino'
import t from 'tap'
import { CouchError, ERRORS, type ErrorName } from '../../src/core/errors.ts'
import { startMemoryServer } from './memory-server.ts'

const NAMES = Object.keys(ERRORS) as ErrorName[]

t.test('docs/errors.md has a row for every row of the table, and no other', async (t) => {
  const page = await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8')
  const documented = page
    .split('\n')
    .filter((line) => /^\| `/.test(line))
    .map((line) => line.split('|').map((cell) => cell.trim().replace(/^`|`$/g, '')))
  const rows = documented.map(([, name, status, error, reason]) => [
    name,
    Number(status),
    error,
    reason === '(empty)' ? '' : reason,
  ])
  t.strictSame(
    rows,
    NAMES.map((name) => [name, ...ERRORS[name]]),
  )
  for (const [, name, , , , when] of documented) t.ok(when, `${name} says when it happens`)
})

t.test('each row becomes an answer of the one shape', async (t) => {
  let thrown: unknown
  const { app } = await startMemoryServer(t, {}, (instance) => {
    instance.get('/_throw', { config: { access: 'public' } }, async () => {
      throw thrown
    })
  })
  for (const name of NAMES) {
    thrown = new CouchError(name)
    const answer = await app.inject('/_throw')
    const [status, error, reason] = ERRORS[name]
    t.equal(answer.statusCode, status, name)
    t.equal(answer.headers['content-type'], 'application/json')
    t.equal(answer.body, `${JSON.stringify({ error, reason })}\n`)
  }
  thrown = new CouchError('forbidden', { a: 1 })
  t.strictSame((await app.inject('/_throw')).json(), { error: 'forbidden', reason: { a: 1 } })
})

t.test('what is no error of ours stays in the log', async (t) => {
  const server = await startMemoryServer(t, {}, (instance) => {
    instance.get('/_throw/:what', { config: { access: 'public' } }, async (request) => {
      const { what } = request.params as { what: string }
      if (what === 'null') throw null
      throw Object.assign(new Error('the secret text'), { statusCode: 418, code: 'FST_ERR_ODD' })
    })
  })
  for (const what of ['error', 'null']) {
    const answer = await server.app.inject(`/_throw/${what}?password=hunter2`)
    t.equal(answer.statusCode, 500)
    t.strictSame(answer.json(), { error: 'internal_server_error', reason: ERRORS.internal_server_error[2] })
    t.notMatch(answer.body, 'secret')
  }
  const logged = server.lines.join('')
  t.match(logged, 'the secret text')
  t.match(logged, '"route":"/_throw/:what"')
  t.notMatch(logged, 'hunter2')
  const faults = server.lines.filter((line) => line.includes('a request failed'))
  t.strictSame(
    faults.map((line) => pino.levels.labels[JSON.parse(line).level]),
    ['error', 'error'],
  )
})
