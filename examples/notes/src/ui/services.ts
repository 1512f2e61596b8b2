/** The objects that the screens use; main.tsx makes them. */
import { createContext } from 'preact'
import { useContext, useEffect, useState } from 'preact/hooks'
import type { Address } from '../../../../src/core/address.ts'
import type { ThisDevice } from '../device.ts'
import type { Diagnosis } from '../diagnosis/finding.ts'
import type { SyncLog } from '../log.ts'
import type { Library } from '../notes/library.ts'
import type { SettingsKeeper } from '../settings.ts'
import type { Watched } from '../store.ts'
import type { Refusals } from '../sync/refusals.ts'
import type { Syncer } from '../sync/syncer.ts'
import type { Toasts } from './toasts.ts'

export interface Services {
  readonly library: Library
  readonly settings: SettingsKeeper
  readonly syncer: Syncer
  readonly refusals: Refusals
  readonly log: SyncLog
  readonly device: ThisDevice
  readonly toasts: Toasts
  /** `scheme://host:port` from the build, or empty. */
  readonly hostedServer: string
  /** The complete diagnosis, including the feed. */
  readonly diagnose: (
    address: Address,
    options: { readonly mobile: boolean; readonly isHosted: boolean },
    signal: AbortSignal,
  ) => Promise<Diagnosis>
}

export const ServicesContext = createContext<Services | null>(null)

export function useServices(): Services {
  const services = useContext(ServicesContext)
  if (services === null) throw new Error('There are no services.')
  return services
}

/** The present value; the component renders again when it changes. */
export function useWatched<Value>(watched: Watched<Value>): Value {
  const [value, setValue] = useState(watched.value)
  useEffect(() => {
    setValue(() => watched.value)
    return watched.subscribe((next) => setValue(() => next))
  }, [watched])
  return value
}
