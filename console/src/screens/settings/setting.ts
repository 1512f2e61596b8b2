/** A setting, as `GET /_settee/configuration` describes it; docs/settee-api.md. */

export type SettingKind =
  | { readonly type: 'integer'; readonly min: number; readonly max: number }
  | { readonly type: 'bytes' | 'count'; readonly min: number }
  | { readonly type: 'choice'; readonly of: readonly string[] }
  | { readonly type: 'text' }

export interface Unsafe {
  readonly severity: 'danger' | 'caution'
  readonly reason: string
}

export interface Setting {
  readonly section: string
  readonly key: string
  readonly value: string | null
  readonly default: string | null
  readonly kind: SettingKind
  readonly about: string | null
  readonly source: 'default' | 'local.ini' | 'shared' | 'environment' | 'command line' | 'memory'
  readonly source_name: string | null
  readonly read_at_start: boolean
  readonly restart_needed: boolean
  readonly editable: boolean
  readonly secret: boolean
  readonly unsafe: Unsafe | null
}
