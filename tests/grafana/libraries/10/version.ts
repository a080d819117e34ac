// What differs between versions of Grafana: the table, what is configured of it (the rest is dropped), and how a
// transformation is registered.
export { Table } from '@grafana/ui';
export const registered = (transformer) => transformer;
export const ofTables = ['align', 'cellOptions', 'filterable', 'hidden', 'inspect', 'minWidth', 'width'];
// Whether panels are drawn, or only read: the components of these versions do not bundle as ES modules.
export const drawn = false;
