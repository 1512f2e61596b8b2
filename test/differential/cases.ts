/** Cases from a seed: a family's databases, and random requests to them. */
import { CarefulChoices } from './careful.ts'
import { attachments } from './families/attachments.ts'
import { documents } from './families/documents.ts'
import type { Family } from './families/family.ts'
import { feeds } from './families/feeds.ts'
import { functions } from './families/functions.ts'
import { histories } from './families/histories.ts'
import { lists } from './families/lists.ts'
import { mango } from './families/mango.ts'
import { odd } from './families/odd.ts'
import { partitions } from './families/partitions.ts'
import { replications } from './families/replications.ts'
import { scheduler } from './families/scheduler.ts'
import { server } from './families/server.ts'
import { views } from './families/views.ts'
import type { Case } from './step.ts'

const FAMILIES: Readonly<Record<string, Family>> = {
  documents,
  histories,
  attachments,
  lists,
  views,
  mango,
  feeds,
  functions,
  partitions,
  replications,
  scheduler,
  server,
  odd,
}
const STEPS = 20

/** @param only the name of a family; by default any */
export function makeCase(seed: number, only?: string): Case {
  const choices = new CarefulChoices(seed)
  const name = only ?? choices.pick(Object.keys(FAMILIES))
  const family = FAMILIES[name]
  if (family === undefined) throw new Error(`no family ${name}`)
  const steps = Array.from({ length: family.steps ?? STEPS }, () => {
    choices.begin()
    return family.step(choices)
  }).flat()
  return { seed, steps: [{ method: 'PUT', path: '/{db}?q=1' }, ...family.begin(choices), ...steps] }
}
