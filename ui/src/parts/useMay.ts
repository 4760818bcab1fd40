import { useQuery } from "@tanstack/react-query";

import { featuresQuery, identityQuery } from "../api/queries";
import { type May, type Scope, mayOf } from "../model/access";

/** Whether this page may do what needs a scope: by the configuration of the cluster, and by who is signed in. */
export function useMay(needed: Scope): May {
  const features = useQuery(featuresQuery);
  const identity = useQuery(identityQuery);
  return mayOf(needed, features.data, identity.data);
}
