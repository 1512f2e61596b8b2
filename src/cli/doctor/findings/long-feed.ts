import { advise } from '../advice.ts'
import { type Finding, fine, note, skipped, wrong } from '../finding.ts'
import { toldFailure } from '../quote.ts'
import type { Scene } from '../scene.ts'
import { LATE } from './feed.ts'

/** A feed that was kept open. */
export interface LongFeed {
  /** In ms, as all here. */
  readonly lasted: number
  /** `open`: as long as was waited. */
  readonly ended: 'open' | 'order' | 'cut'
  readonly status: number | null
  readonly failure: string | null
  /** When the first byte came; null: none did. */
  readonly firstMs: number | null
  /** The longest time in which nothing came. */
  readonly silentMs: number
}

export interface LongFacts {
  /** A continuous feed with heartbeats, which never ends by itself. */
  readonly beating: LongFeed
  /** What it was asked for. */
  readonly heartbeatMs: number
  /** A longpoll without, as apps ask for that use time-outs in their place. */
  readonly silent: LongFeed
}

/** Judges how long feeds live; null: they were not waited for. */
export function judgeLongFeed(facts: LongFacts | null, scene: Scene): Finding {
  if (facts === null)
    return skipped(
      'long feed',
      'Not waited for: whether a feed is cut after a minute or two, --long finds out.',
    )
  return judgeBeating(facts, scene) ?? judgeSilent(facts, scene)
}

/** @returns null where nothing is wrong with the feed that has heartbeats */
function judgeBeating({ beating, heartbeatMs }: LongFacts, scene: Scene): Finding | null {
  const { stage } = scene
  const lasted = seconds(beating.lasted)
  if (isCut(beating)) {
    const text = `A feed with heartbeats was cut after ${lasted}: ${how(beating, scene)}.`
    return wrong('long feed', text, advise('cut', stage, 'proxy'))
  }
  // Where an answer's end is the connection's, as with HTTP/1.0, a cut looks like this.
  if (beating.ended === 'order') {
    const text = `A feed with heartbeats was ended after ${lasted}, though it has no end of its own.`
    return wrong('long feed', text, advise('cut', stage, 'proxy'))
  }
  if (beating.silentMs <= heartbeatMs * LATE) return null
  const much = beating.firstMs === null ? 'Nothing of' : `Nothing for ${seconds(beating.silentMs)} of`
  const text = `${much} a feed with heartbeats came in ${lasted}: a proxy keeps it back.`
  return wrong('long feed', text, advise('buffering', stage, 'proxy'))
}

function judgeSilent({ beating, silent }: LongFacts, scene: Scene): Finding {
  const lasted = seconds(silent.lasted)
  if (isCut(silent)) {
    return note(
      'long feed',
      `A feed without heartbeats was cut after ${lasted}: ${how(silent, scene)}. With heartbeats it lives.`,
      advise('cut', scene.stage, 'proxy'),
    )
  }
  const other = silent.ended === 'open' ? 'lived as long' : `ended in order after ${lasted}`
  return fine(
    'long feed',
    `A feed with heartbeats lived for ${seconds(beating.lasted)}, never silent for more than ${seconds(beating.silentMs)}; one without ${other}.`,
  )
}

function isCut({ ended, status }: LongFeed): boolean {
  return ended === 'cut' || (status !== null && status >= 400)
}

function how({ status, failure }: LongFeed, { quote }: Scene): string {
  if (status !== null && status >= 400) return `${status}`
  return failure === null ? 'the connection was closed' : toldFailure(failure, quote)
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`
}
