// What differs between versions of Grafana: the table, what is configured of it (the rest is dropped), and how a
// transformation is registered.
export { Table } from '@grafana/ui';
export const registered = (transformer) => transformer;
export const ofTables = ['align', 'cellOptions', 'filterable', 'hidden', 'inspect', 'minWidth', 'width'];
