/** The screens: their addresses, who sees them, and how they are loaded. */
import type { ComponentType } from 'preact'
import { server, user } from '../api/session.ts'
import type { IconName } from '../parts/icon.tsx'
import type { Route } from './hash.ts'

export type ScreenName =
  | 'overview'
  | 'databases'
  | 'devices'
  | 'replication'
  | 'doctor'
  | 'hosted'
  | 'settings'

/** A screen gets the rest of its address. */
export type Screen = ComponentType<Route>

interface ScreenEntry {
  readonly name: ScreenName
  readonly icon: IconName
  /** Loads the screen's code. */
  readonly load: () => Promise<{ readonly default: Screen }>
  isVisible(): boolean
}

const toAll = () => true
const toAdmins = () => user.value?.isAdmin === true

export const SCREENS: readonly ScreenEntry[] = [
  {
    name: 'overview',
    icon: 'overview',
    load: () => import('../screens/overview/overview-screen.tsx'),
    isVisible: toAll,
  },
  {
    name: 'databases',
    icon: 'databases',
    load: () => import('../screens/databases/databases-screen.tsx'),
    isVisible: toAll,
  },
  {
    name: 'devices',
    icon: 'devices',
    load: () => import('../screens/devices/devices-screen.tsx'),
    isVisible: toAll,
  },
  {
    name: 'replication',
    icon: 'replication',
    load: () => import('../screens/replication/replication-screen.tsx'),
    isVisible: toAdmins,
  },
  {
    name: 'hosted',
    icon: 'hosted',
    load: () => import('../screens/hosted/hosted-screen.tsx'),
    isVisible: () => toAdmins() && server.value?.isHosted === true,
  },
  {
    name: 'doctor',
    icon: 'doctor',
    load: () => import('../screens/doctor/doctor-screen.tsx'),
    isVisible: toAll,
  },
  {
    name: 'settings',
    icon: 'settings',
    load: () => import('../screens/settings/settings-screen.tsx'),
    isVisible: toAdmins,
  },
]
