/** The algorithms of section `[uuids]`; protocol.md 15. */
import t from 'tap'
import { DEFAULT_UUID_RULES, type UuidRules, uuidMaker } from '../../src/core/uuids.ts'

const make = (rules: Partial<UuidRules>, lane: 0 | 1 = 0, now?: () => number) =>
  uuidMaker(() => ({ ...DEFAULT_UUID_RULES, ...rules }), lane, now)
const many = (next: () => string, count = 5000) => Array.from({ length: count }, next)

t.test('each algorithm has its form, and no id comes twice', async (t) => {
  const forms: [rules: Partial<UuidRules>, form: RegExp][] = [
    [{}, /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/],
    [{ algorithm: 'uuid_v4' }, /^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$/],
    [
      { algorithm: 'uuid_v4', format: 'rfc9562' },
      /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    ],
    [{ format: 'base_36' }, /^0[0-9a-z]{24}$/],
    [{ algorithm: 'random', format: 'rfc9562' }, /^[0-9a-f]{32}$/],
    [{ algorithm: 'sequential' }, /^[0-9a-f]{32}$/],
    [{ algorithm: 'utc_random' }, /^[0-9a-f]{32}$/],
    [{ algorithm: 'utc_id', utcIdSuffix: '@a' }, /^[0-9a-f]{14}@a$/],
  ]
  for (const [rules, form] of forms) {
    const ids = many(make(rules))
    t.ok(
      ids.every((id) => form.test(id)),
      `${rules.algorithm} ${ids[0]}`,
    )
    t.equal(new Set(ids).size, ids.length)
  }
})

t.test(
  'sequential ids grow by small steps, and the prefix is another when the number is used up',
  async (t) => {
    const ids = many(make({ algorithm: 'sequential' }), 20_000)
    const prefixes = [...new Set(ids.map((id) => id.slice(0, 26)))]
    t.ok(prefixes.length > 1 && prefixes.length < 5, String(prefixes.length))
    const first = ids.filter((id) => id.startsWith(prefixes[0] as string))
    t.same([...first].sort(), first)
  },
)

t.test('the time of utc ids goes on when the clock does not, and two lanes never meet', async (t) => {
  const lanes = [0, 1].map((lane) => many(make({ algorithm: 'utc_id' }, lane as 0 | 1, () => 345)))
  t.equal(new Set(lanes.flat()).size, 10_000)
  t.same(lanes[0]?.slice(0, 2), ['00000000000158', '0000000000015a'])
  t.same([...(lanes[0] ?? [])].sort(), lanes[0])
  let now = 1000
  const next = make({ algorithm: 'utc_id' }, 0, () => now)
  t.equal(next(), (1000).toString(16).padStart(14, '0'))
  now = 10
  t.equal(next(), (1002).toString(16).padStart(14, '0'), 'a clock that was set back')
})
