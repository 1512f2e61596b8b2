/** The policy of hosted mode on a database: settee's own design document passes, and nothing is read, staged or run. */
import t from 'tap'
import { HOSTED_POLICY } from '../../src/config/settings.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES, type DocumentPolicy } from '../../src/core/types.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from '../../src/documents/auth-design.ts'
import { isBuiltInDesign, policyRefusals, policySandbox } from '../../src/documents/document-policy.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, body, jsonOf, NOBODY, parse, spooled } from './helpers.ts'

/** The same store with a policy that allows everything (`before`), and with the policy of hosted mode. */
async function openHosted(name: string) {
  const engine = memoryEngine()
  const { incarnation } = await (await engine.openCatalog()).create(name)
  const opened = await engine.openDatabase(name)
  const staged: string[] = []
  const store: VersionedStore = new Proxy(opened, {
    get: (target, member: keyof VersionedStore) => {
      if (member === 'uploadBlob') staged.push(member)
      const value = target[member]
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const make = (policy: DocumentPolicy) =>
    storeDatabase(store, {
      name,
      limits: () => DEFAULT_LIMITS,
      rules: () => ({ ...DEFAULT_RULES, policy }),
      onSecured: () => undefined,
      sandbox: policySandbox(policy, localSandbox(), name),
      incarnation,
      startCompaction: () => undefined,
    })
  return { before: make(DEFAULT_RULES.policy), hosted: make(HOSTED_POLICY), store, staged }
}

const AUTH = JSON.parse(AUTH_DESIGN_BODY) as Record<string, unknown>
const doc = (body: string, deleted = false) => ({ body, deleted, attachments: [] })

const refusal = (database: string, edit: Parameters<typeof policyRefusals>[2][number]) =>
  policyRefusals(HOSTED_POLICY, database, [edit])?.[0] ?? null

t.test('_design/_auth of _users is exempt, exactly as settee has it', (t) => {
  t.equal(refusal('_users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY) }), null)
  const attachments = [{ name: 'a', type: 'text/plain', revpos: undefined, content: null }]
  const refused = [
    refusal('users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY) }),
    refusal('_users', { id: '_design/auth', doc: doc(AUTH_DESIGN_BODY) }),
    refusal('_users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY.replace('}', ',"x":1}')) }),
    refusal('_users', { id: AUTH_DESIGN_ID, doc: doc(AUTH_DESIGN_BODY, true) }),
  ]
  for (const found of refused) t.match(found, { code: 'hosted_design', status: 403, error: 'forbidden' })
  t.match(refusal('_users', { id: AUTH_DESIGN_ID, doc: { ...doc(AUTH_DESIGN_BODY), attachments } }), {
    code: 'hosted_attachment',
  })
  t.equal(isBuiltInDesign('_users', AUTH_DESIGN_ID, '{}'), false)
  t.end()
})

t.test('it comes in by every way, and no tombstone of it does', async (t) => {
  for (const newEdits of [true, false]) {
    const { hosted } = await openHosted('_users')
    const rev = newEdits ? {} : { _rev: '1-abc' }
    const docs = [{ _id: AUTH_DESIGN_ID, ...rev, ...AUTH }]
    await jsonOf(hosted.bulkDocs(ADMIN, body({ docs, new_edits: newEdits })))
    const stored = parse((await hosted.open(ADMIN, AUTH_DESIGN_ID, {})).json)
    t.match(stored, AUTH)
    await t.rejects(hosted.remove(ADMIN, AUTH_DESIGN_ID, stored._rev), { code: 'hosted_design' })
    const other = { ...AUTH, validate_doc_update: 'function () {}', _rev: stored._rev }
    await t.rejects(hosted.put(ADMIN, AUTH_DESIGN_ID, body(other), {}), { code: 'hosted_design' })
  }
  const { hosted } = await openHosted('_users')
  t.match(await hosted.put(ADMIN, AUTH_DESIGN_ID, body(AUTH), {}), { rev: /^1-/ })
})

t.test('no validate function that is stored has a say', async (t) => {
  const { before, hosted } = await openHosted('_users')
  const no = { validate_doc_update: 'function () { throw { forbidden: "it has run" } }' }
  await before.put(ADMIN, '_design/no', body(no), {})
  await before.put(ADMIN, AUTH_DESIGN_ID, body({ ...AUTH, ...no }), {})
  t.match(await hosted.put(ADMIN, 'x', body({}), {}), { rev: /^1-/ })
  await t.rejects(before.put(ADMIN, 'y', body({}), {}), { code: 'forbidden', reason: 'it has run' })
})

t.test('a policy that allows everything has no refusals', (t) => {
  const edits = [{ id: '_design/d', doc: doc('{}'), attachment: 'a' }]
  t.equal(policyRefusals(DEFAULT_RULES.policy, 'notes', edits), null)
  t.end()
})

t.test('the sandbox refuses what is not settee’s own', async (t) => {
  const calls: string[] = []
  const asked = (name: string) => async () => {
    calls.push(name)
    return []
  }
  const inner = {
    compile: async () => void calls.push('compile'),
    filter: asked('filter'),
    map: asked('map'),
    reduce: asked('reduce'),
    validate: asked('validate'),
  } satisfies Sandbox
  const source = `{"_id":"${AUTH_DESIGN_ID}","_rev":"1-a",${AUTH_DESIGN_BODY.slice(1)}`
  const own = { database: 1, ddoc: AUTH_DESIGN_ID, rev: '1-a', path: ['validate_doc_update'], source }
  const all = (sandbox: Sandbox, fn: typeof own): Promise<unknown>[] => [
    sandbox.compile(fn),
    sandbox.filter(fn, [], '{}'),
    sandbox.map(fn, []),
    sandbox.reduce(fn, []),
    sandbox.validate(fn, []),
  ]
  for (const [database, fn] of [
    ['notes', own],
    ['_users', { ...own, ddoc: '_design/other' }],
    ['_users', { ...own, source: source.replace('}', ',"x":1}') }],
    ['_users', { ...own, rev: '2-b' }],
  ] as const) {
    for (const call of all(policySandbox(HOSTED_POLICY, inner, database), fn)) {
      await t.rejects(call as Promise<void>, { code: 'hosted_function' })
    }
  }
  t.same(calls, [])
  await Promise.all(all(policySandbox(HOSTED_POLICY, inner, '_users'), own))
  t.same(calls, ['compile', 'filter', 'map', 'reduce', 'validate'])
})

t.test('contents are neither read nor staged', async (t) => {
  const { hosted, store, staged } = await openHosted('notes')
  const large = Buffer.alloc(700_000, 'settee')
  const put = { type: 'text/plain', encoding: null }
  await t.rejects(hosted.putAttachment(ADMIN, 'x', 'a', { bytes: large }, put), { code: 'hosted_attachment' })
  await t.rejects(
    hosted.putAttachment(ADMIN, 'x', 'a', await spooled(t, large), { ...put, encoding: 'gzip' }),
    {
      code: 'hosted_attachment',
    },
  )
  const odd = [{ data: 'no base64' }, { data: 5 }, 7, { stub: true, revpos: -1 }, { content_type: 1 }]
  for (const a of odd) {
    await t.rejects(hosted.put(ADMIN, 'x', body({ _attachments: { a } }), {}), { code: 'hosted_attachment' })
  }
  await t.rejects(hosted.put(ADMIN, 'x', body({ _attachments: [] }), {}), { code: 'doc_validation' })
  t.same(staged, [])
  t.equal(await store.countAttachments(10), 0)
  t.equal((await hosted.info(ADMIN)).sizes.external, 0)
})

t.test('what is wrong with a request as a whole is told before', async (t) => {
  const { hosted } = await openHosted('notes')
  const design = { _id: '_design/x' }
  const bulk = (docs: unknown[]) => jsonOf(hosted.bulkDocs(ADMIN, body({ docs })))
  await t.rejects(bulk([design, { _id: 'a', _bad: 1 }]), { code: 'doc_validation' })
  await t.rejects(bulk([design, { _id: '_design/' }]), { code: 'illegal_docid' })
  t.match(await bulk([design, { _id: 'a' }, design]), [
    { id: '_design/x', error: 'forbidden' },
    { ok: true },
    { id: '_design/x', error: 'forbidden' },
  ])
  const twice = [
    { _id: 'b', _attachments: { a: { stub: true } } },
    { _id: 'b', n: 1 },
  ]
  t.match(await bulk(twice), [{ error: 'forbidden' }, { ok: true, rev: /^1-/ }], 'as if it had not been sent')
})

t.test('who may not write here is told that', async (t) => {
  const { hosted } = await openHosted('notes')
  const refused = { code: 'unauthorized' }
  await t.rejects(hosted.put(NOBODY, '_design/x', body({}), {}), refused)
  await t.rejects(hosted.put(NOBODY, 'x', body({ _attachments: { a: { stub: true } } }), {}), refused)
  await t.rejects(hosted.removeAttachment(NOBODY, 'x', 'a', undefined), refused)
  const put = { type: 'text/plain', encoding: null }
  await t.rejects(hosted.putAttachment(NOBODY, 'x', 'a', body('a'), put), refused)
})

t.test('documents from before: a deletion is taken, an edit drops what they had', async (t) => {
  const { before, hosted } = await openHosted('notes')
  const a = { data: Buffer.from('a').toString('base64') }
  const [one, two] = [
    await before.put(ADMIN, 'one', body({ _attachments: { a } }), {}),
    await before.put(ADMIN, 'two', body({ _attachments: { a } }), {}),
  ]
  t.same(await hosted.countDisallowed(), { designDocs: 0, attachments: 2 })
  await hosted.remove(ADMIN, 'one', one.rev)
  await hosted.put(ADMIN, 'two', body({ _rev: two.rev, n: 1 }), {})
  t.notMatch(parse((await hosted.open(ADMIN, 'two', {})).json), { _attachments: {} })
})

t.test('what came before is counted, settee’s own design document aside', async (t) => {
  const { before, hosted } = await openHosted('_users')
  await before.put(ADMIN, AUTH_DESIGN_ID, body(AUTH), {})
  t.same(await hosted.countDisallowed(), { designDocs: 0, attachments: 0 })
  await before.put(ADMIN, '_design/x', body({}), {})
  t.same(await hosted.countDisallowed(), { designDocs: 1, attachments: 0 })
})
