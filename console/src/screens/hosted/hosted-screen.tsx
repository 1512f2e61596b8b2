/** `#/hosted` lists the accounts of hosted mode, `#/hosted/NAME` is one of them. */
import type { Route } from '../../shell/hash.ts'
import { TenantList } from './tenant-list.tsx'
import { TenantPageView } from './tenant-page.tsx'
import './hosted.css'

export default function HostedScreen({ path: [name], query }: Route) {
  return name === undefined ? (
    <TenantList prefix={query.prefix ?? ''} />
  ) : (
    <TenantPageView key={name} name={name} />
  )
}
